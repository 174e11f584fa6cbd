"""Questions that take many steps of the engine: a chunk at a time, so that jobs go on meanwhile."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from stoker.runner.engine import Engine

DIGITS: Final = 7  # a float has no more


@dataclass(slots=True)
class Scoring:
    """Nats of one text after its first token."""

    query: str
    tokens: list[int]
    _at: int = 0
    _nats: list[float] = field(default_factory=list)

    def restart(self) -> None:
        self._at = 0
        self._nats.clear()

    def step(self, engine: Engine) -> Mapping[str, object] | None:
        """One chunk; the answer when it was the last."""
        nats, self._at = engine.score(self.tokens, self._at)
        if self._at == 0:
            self._nats.clear()
            return None
        self._nats.append(nats)
        if self._at < len(self.tokens) - 1:
            return None
        return {"nll": math.fsum(self._nats), "tokens": len(self.tokens) - 1}


@dataclass(slots=True)
class Embedding:
    """A vector of length one for each of some texts, one after the other."""

    query: str
    texts: list[list[int]]
    _at: int = 0
    _sum: list[float] = field(default_factory=list)
    _vectors: list[list[float]] = field(default_factory=list)

    def restart(self) -> None:
        self._at = 0
        self._sum = []

    def step(self, engine: Engine) -> Mapping[str, object] | None:
        """One chunk of one text; the answer when it was the last of all."""
        tokens = self.texts[len(self._vectors)]
        part, self._at = engine.embed(tokens, self._at)
        if self._at == 0:  # a job was cancelled meanwhile: this text is run again
            self._sum = []
            return None
        self._sum = [a + b for a, b in zip(self._sum, part, strict=True)] if self._sum else part
        if self._at < len(tokens):
            return None
        self._vectors.append([round(value, DIGITS) for value in unit(self._sum)])
        self.restart()
        if len(self._vectors) < len(self.texts):
            return None
        return {"vectors": self._vectors, "tokens": sum(map(len, self.texts))}


def unit(vector: Sequence[float]) -> list[float]:
    """The vector at length one; zeros stay zeros."""
    length = math.sqrt(math.fsum(value * value for value in vector))
    return [value / length for value in vector] if length > 0.0 else list(vector)
