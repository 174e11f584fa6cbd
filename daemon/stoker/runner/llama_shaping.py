"""Grammars, likelihoods, adapters and vectors of one llama.cpp context. No jobs, no batches.

What the engine asks of C beyond decoding and sampling; every index is checked before.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final

from stoker.errors import EngineFailed, InvalidRequest
from stoker.runner.constraint import Constraint
from stoker.runner.grammar_rules import Grammar
from stoker.runner.llama_adapters import Shelf
from stoker.runner.picking import Picker
from stoker.runner.vocabulary import Vocabulary

EMBED_CHUNK_TOKENS: Final = 32
MEAN: Final = "mean"
_POOLING: Final = {b"1": MEAN, b"2": "first", b"3": "last"}  # llama_pooling_type


class LlamaShaping:
    """For one context; ``free`` before the context goes."""

    def __init__(
        self, c: Any, model: Any, context: Any, vocabulary: Vocabulary, adapters: Shelf
    ) -> None:
        self._c = c
        self._context = context
        self._vocabulary = vocabulary
        self._adapters = adapters
        self._acting: tuple[tuple[str, float], ...] = ()
        self._picker: Picker | None = None
        self._constraints: dict[int, Constraint] = {}
        self._remembering: set[int] = set()  # sequences whose chain has a history
        self._last: dict[int, int] = {}  # sequence -> row of the logits it was sampled from
        self._width = int(c.llama_model_n_embd(model))
        self._pooling = _pooling(c, model)

    def free(self) -> None:
        self._constraints.clear()
        if self._picker is not None:
            self._picker.free()
            self._picker = None

    def opened(self, seq: int, *, remembers: bool) -> None:
        if remembers:
            self._remembering.add(seq)

    def constrain(self, seq: int, grammar: Grammar) -> None:
        vocabulary = self._vocabulary
        self._constraints[seq] = Constraint(
            grammar, vocabulary.piece, vocabulary.in_order, vocabulary.ends
        )

    def constrained(self, seq: int) -> bool:
        return seq in self._constraints

    def exhausted(self, seq: int) -> bool:
        found = self._constraints.get(seq)
        return found is not None and found.exhausted

    def forget(self, seq: int) -> None:
        self._constraints.pop(seq, None)
        self._remembering.discard(seq)
        self._last.pop(seq, None)

    def pick(self, seq: int, row: int, chain: Any) -> int:
        remembers = seq in self._remembering
        return self._pick().pick(
            self._context, row, chain, self._constraints[seq], remembers=remembers
        )

    def sampled_from(self, seq: int, row: int) -> None:
        self._last[seq] = row

    def chances(self, seq: int, token: int, top: int) -> tuple[float, list[tuple[int, float]]]:
        row = self._last.get(seq)
        if row is None or not 0 <= token < self._vocabulary.size:
            raise EngineFailed("cannot say how likely a token is: it was not sampled here")
        return self._pick().chances(self._context, row, token, top)

    def adapt(self, wanted: Sequence[tuple[str, float]]) -> None:
        """Cheap while nothing changes. Raises InvalidRequest for an unknown adapter."""
        if self._acting == wanted:
            return
        pointers = [self._adapters.pointer(key) for key, _ in wanted]
        if not all(pointers):
            raise InvalidRequest("cannot use adapters: one of them is not loaded")
        count = len(pointers)
        scales = (ctypes.c_float * count)(*(scale for _, scale in wanted))
        array = (self._c.llama_adapter_lora_p_ctypes * count)(*pointers)
        self._c.llama_set_adapters_lora(self._context, array, count, scales)
        self._acting = tuple(wanted)

    def embed(
        self, tokens: Sequence[int], start: int, decode: Callable[[int, Sequence[int]], int]
    ) -> tuple[list[float], int, int]:
        """(pooled sum of one chunk, next start, status of ``decode``)."""
        end = min(start + EMBED_CHUNK_TOKENS, len(tokens))
        self._c.llama_set_embeddings(self._context, True)
        try:
            status = decode(start, tokens[start:end])
            vector = self._pooled(start, end, len(tokens)) if status == 0 else []
        finally:
            self._c.llama_set_embeddings(self._context, False)
        return vector, end, status

    def _pooled(self, start: int, end: int, total: int) -> list[float]:
        rows = range(end - start)
        if self._pooling == "first":
            rows = rows[:1] if start == 0 else rows[:0]
        elif self._pooling == "last":
            rows = rows[-1:] if end == total else rows[:0]
        sums = [0.0] * self._width
        for row in rows:
            pointer = self._c.llama_get_embeddings_ith(self._context, row)
            if not pointer:
                raise EngineFailed("cannot embed text: the model gives no vectors")
            values = pointer[: self._width]
            sums = [one + other for one, other in zip(sums, values, strict=True)]
        return sums

    def _pick(self) -> Picker:
        if self._picker is None:  # a megabyte or two: only for those who use it
            self._picker = Picker(self._c, self._vocabulary.size)
        return self._picker


def _pooling(c: Any, model: Any) -> str:
    """What an embedding model's own header asks for; else the mean."""
    buffer = ctypes.create_string_buffer(128)
    if c.llama_model_meta_val_str(model, b"general.architecture", buffer, len(buffer)) < 0:
        return MEAN
    key = buffer.value + b".pooling_type"
    if c.llama_model_meta_val_str(model, key, buffer, len(buffer)) < 0:
        return MEAN
    return _POOLING.get(buffer.value, MEAN)
