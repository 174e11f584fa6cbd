"""Chooses the next token under a grammar, and says how likely tokens were. Uses the binding.

The grammar is asked about the token that was drawn; only when it says no are others looked
at: first the likeliest, then, where a grammar leaves little, a walk over all pieces. No
grammar sampler of llama.cpp is used: it can neither be bounded nor stopped.
"""

from __future__ import annotations

import ctypes
import math
from array import array
from typing import Any, Final

from stoker.errors import EngineFailed, GrammarInvalid
from stoker.runner.constraint import Constraint

LIKELIEST: Final = 256
_ENTRY: Final = 12  # llama_token_data: int32 id, float logit, float p


class Picker:
    """Buffers for one model's vocabulary; ``c`` is the binding."""

    def __init__(self, c: Any, vocabulary: int) -> None:
        self._c = c
        self._size = vocabulary
        self._bytes = bytearray(_ENTRY * vocabulary)
        self._entries = (c.llama_token_data * vocabulary).from_buffer(self._bytes)
        self._ids = memoryview(self._bytes).cast("i")
        self._floats = memoryview(self._bytes).cast("f")
        self._every = memoryview(array("i", range(vocabulary)))
        self._logits = array("f", bytes(4 * vocabulary))
        self._array = c.llama_token_data_array()
        self._likeliest = c.llama_sampler_init_top_k(min(LIKELIEST, vocabulary))
        self._softmax = c.llama_sampler_init_dist(0)
        if not self._likeliest or not self._softmax:
            raise EngineFailed("cannot prepare the engine: a sampler could not be made")

    def free(self) -> None:
        self._c.llama_sampler_free(self._likeliest)
        self._c.llama_sampler_free(self._softmax)

    def pick(
        self, context: Any, row: int, chain: Any, constraint: Constraint, *, remembers: bool
    ) -> int:
        """Draws with ``chain``, whose history it extends. Raises GrammarInvalid, EngineFailed.

        ``remembers``: what the chain drew counts against later tokens, so only what is used
        may be told to it. Without, the first draw is the library's own, ten times quicker.
        """
        constraint.new_token()
        if remembers:
            self._read(context, row)
            self._fill()
            token = self._draw(chain, self._size)
        else:
            token = int(self._c.llama_sampler_sample(chain, context, row))
        if not constraint.accept(token):
            self._read(context, row)
            self._fill()
            allowed = self._allowed(constraint)
            for index, (number, logit) in enumerate(allowed):
                self._ids[3 * index] = number
                self._floats[3 * index + 1] = logit
            token = self._draw(chain, len(allowed))
            if not constraint.accept(token):
                raise EngineFailed("cannot go on: the sampler drew what it was not given")
        if remembers:
            self._c.llama_sampler_accept(chain, token)
        return token

    def chances(
        self, context: Any, row: int, token: int, top: int
    ) -> tuple[float, list[tuple[int, float]]]:
        """Natural logarithms of the model's own distribution (temperature 1, no sampler):
        of ``token`` and of the ``top`` likeliest.
        """
        self._read(context, row)
        self._fill()
        self._apply(self._softmax, self._size)
        self._apply(self._likeliest, self._array.size)
        best = self._entries[0]
        if not best.p > 0.0:
            raise EngineFailed("cannot say how likely a token is: the logits are no numbers")
        # p of the best is exact in a float, those of the rest may have become 0
        whole = best.logit - math.log(best.p)
        count = min(top, self._array.size)
        entries = [(int(self._ids[3 * n]), float(self._floats[3 * n + 1])) for n in range(count)]
        return self._logits[token] - whole, [(number, logit - whole) for number, logit in entries]

    def _allowed(self, constraint: Constraint) -> list[tuple[int, float]]:
        self._apply(self._likeliest, self._size)
        count = self._array.size
        likely = [(self._ids[3 * n], self._floats[3 * n + 1]) for n in range(count)]
        found = [(token, logit) for token, logit in likely if constraint.allows(token)]
        if not found:
            found = [(token, self._logits[token]) for token in constraint.all_allowed()]
        found = [(token, logit) for token, logit in found if math.isfinite(logit)]
        if not found:
            raise GrammarInvalid("cannot go on: no token of this model fits the grammar here")
        return found

    def _read(self, context: Any, row: int) -> None:
        pointer = self._c.llama_get_logits_ith(context, row)
        if not pointer:
            raise EngineFailed("cannot sample: no logits")
        ctypes.memmove(self._logits.buffer_info()[0], pointer, 4 * self._size)

    def _fill(self) -> None:
        self._ids[0::3] = self._every
        self._floats[1::3] = memoryview(self._logits)

    def _draw(self, chain: Any, count: int) -> int:
        self._apply(chain, count)
        selected = self._array.selected
        if not 0 <= selected < self._array.size:
            raise EngineFailed("cannot sample: the sampler chose nothing")
        return int(self._entries[selected].id)

    def _apply(self, sampler: Any, count: int) -> None:
        found = self._array
        found.data = ctypes.cast(self._entries, type(found.data))
        found.size, found.selected, found.sorted = count, -1, False
        self._c.llama_sampler_apply(sampler, ctypes.byref(found))
