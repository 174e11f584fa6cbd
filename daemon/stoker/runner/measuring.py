"""How fast the model is with so many threads: the question behind an operating point.

A sequence of its own is filled (prefill) or continued token by token (decode) until the time is
up, a chunk at a time, so that beats go on. The first chunk warms up and does not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from stoker.errors import EngineFailed, InsufficientMemory
from stoker.runner.engine import Engine, Facts, Outcome, Run

PHASES: Final = ("prefill", "decode")
CHUNK_S: Final = 0.5  # of reading: the agent must hear from us meanwhile
FIRST_TOKENS: Final = 8
DECODE_STEPS: Final = 4  # a chunk of them
WORDS: Final = "a quick measure of speed "


@dataclass(slots=True)
class Measuring:
    """See ``desk.Long``. ``before``: threads to go back to."""

    query: str
    phase: str
    threads: int
    limit_s: float
    facts: Facts
    before: tuple[int, int]
    clock: Callable[[], float] = time.monotonic
    cpu: Callable[[], float] = time.process_time
    _at: int = 0
    _chunk: int = FIRST_TOKENS
    _began: bool = False
    _first: bool = True
    _spent: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])  # tokens, wall, cpu
    _words: list[int] = field(default_factory=list)

    def restart(self) -> None:
        """Room was made for us: the sequence begins again, what was measured counts."""
        self._at = 0

    def step(self, engine: Engine) -> Mapping[str, object] | None:
        """One chunk; the answer when the time is up."""
        if not self._began:
            self._begin(engine)
        count = self._chunk if self.phase == PHASES[0] else DECODE_STEPS
        if self._at + count >= self.facts.context_tokens:
            engine.clear(self._seq)
            self._at = 0
        wall_s, cpu_s = self.clock(), self.cpu()
        if self.phase == PHASES[0]:
            self._run(engine, count, logits=False)
        else:
            for _ in range(count):
                self._run(engine, 1, logits=True)
        wall_s, cpu_s = self.clock() - wall_s, self.cpu() - cpu_s
        if not self._counts(count, wall_s):
            return None
        for at, value in enumerate((count, wall_s, cpu_s)):
            self._spent[at] += value
        if self._spent[1] < self.limit_s:
            return None
        self.close(engine)
        return {"tokens": int(self._spent[0]), "wall_s": self._spent[1], "cpu_s": self._spent[2]}

    def close(self, engine: Engine) -> None:
        """Threads and the sequence are as they were; also when nobody waits any more."""
        if self._began:
            self._began = False
            engine.close(self._seq)
            engine.clear(self._seq)
            engine.set_threads(*self.before)

    @property
    def _seq(self) -> int:
        return self.facts.sequences  # one more than jobs and cached prefixes may have

    def _begin(self, engine: Engine) -> None:
        self._began = True
        self._words = engine.encode(WORDS)[-16:] or [0]
        self._chunk = min(FIRST_TOKENS, self._most)
        engine.set_threads(self.threads, self.threads)
        engine.adapt(())
        engine.clear(self._seq)

    @property
    def _most(self) -> int:
        return max(1, min(self.facts.batch_tokens, self.facts.context_tokens // 2))

    def _run(self, engine: Engine, count: int, *, logits: bool) -> None:
        words = self._words
        tokens = [words[(self._at + i) % len(words)] for i in range(count)]
        engine.clear_abort()
        outcome = engine.step([Run(self._seq, self._at, tokens, logits)])
        if outcome is Outcome.FULL:
            raise InsufficientMemory("cannot measure: the key-value cache is full")
        if outcome is not Outcome.DONE:
            raise EngineFailed("cannot measure: the step was stopped")
        self._at += count

    def _counts(self, count: int, wall_s: float) -> bool:
        """False while it warms up: weights are read, and a prompt's chunk grows to its size."""
        first, self._first = self._first, False
        if self.phase == PHASES[0] and not self._spent[0]:
            larger = min(self._most, int(count * CHUNK_S / max(wall_s, 1e-6)), 8 * count)
            if larger >= 2 * count:
                self._chunk = larger
                return False
        return not first
