"""Sequences in llama.cpp's key-value cache: copy, truncate, shift, save, restore.

Whole copies only: a partial one kills the process where each sequence has a cache of its
own. What a memory cannot do is asked or found out by the answer, never assumed.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any, Final

MAX_STATE_BYTES: Final = 1 << 32


class LlamaMemory:
    """``c`` is the binding, ``context`` one context of it. The engine's thread only."""

    def __init__(self, c: Any, context: Any) -> None:
        self._c = c
        self._context = context
        self._memory = c.llama_get_memory(context)
        self.can_shift = bool(c.llama_memory_can_shift(self._memory))

    def length(self, seq: int) -> int:
        return int(self._c.llama_memory_seq_pos_max(self._memory, seq)) + 1

    def truncate(self, seq: int, length: int) -> bool:
        return bool(self._c.llama_memory_seq_rm(self._memory, seq, length, -1))

    def clear(self, seq: int) -> None:
        self._c.llama_memory_seq_rm(self._memory, seq, -1, -1)

    def copy(self, source: int, target: int, length: int) -> bool:
        self._c.llama_memory_seq_cp(self._memory, source, target, -1, -1)
        if self.truncate(target, length) and self._whole(target, length):
            return True
        self.clear(target)
        return False

    def shift(self, seq: int, keep: int, discard: int) -> bool:
        if not self.can_shift:
            return False
        if not self._c.llama_memory_seq_rm(self._memory, seq, keep, keep + discard):
            return False
        self._c.llama_memory_seq_add(self._memory, seq, keep + discard, -1, -discard)
        return True

    def save(self, seq: int) -> memoryview | None:
        """In memory of its own that goes back to the system with the last reference."""
        size = int(self._c.llama_state_seq_get_size(self._context, seq))
        if not 0 < size <= MAX_STATE_BYTES:
            return None
        try:
            room = mmap.mmap(-1, size)
        except (OSError, ValueError):
            return None
        place = (ctypes.c_uint8 * size).from_buffer(room)
        written = int(self._c.llama_state_seq_get_data(self._context, place, size, seq))
        del place
        return memoryview(room)[:written] if 0 < written <= size else None

    def restore(self, seq: int, state: memoryview) -> bool:
        size = state.nbytes
        if not 0 < size <= MAX_STATE_BYTES:
            return False
        if state.readonly:
            place: Any = (ctypes.c_uint8 * size).from_buffer_copy(state)
        else:
            place = (ctypes.c_uint8 * size).from_buffer(state)
        used = int(self._c.llama_state_seq_set_data(self._context, place, size, seq))
        if used == size:
            return True
        self.clear(seq)  # a failed restore may leave some positions behind
        return False

    def _whole(self, seq: int, length: int) -> bool:
        """A memory with a window may have let go of the beginning."""
        first = int(self._c.llama_memory_seq_pos_min(self._memory, seq))
        return self.length(seq) == length and first <= 0
