"""Streams of answers from one side of a comparison, read as they come and judged afterwards.

One thread waits for all of them and only notes when which bytes arrived: a reader that parses
while it reads takes the second core from whoever is measured. It knows no protocol: a ``Side``
sends, counts and says how text looks on its wire.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

WORDS = tuple(
    "river stone lamp garden winter engine copper letter window bridge forest paper market "  # noqa: SIM905
    "summer kettle harbour silver candle mountain orchard village piston wheel ribbon".split()
)


@dataclass(frozen=True, slots=True)
class Work:
    """One raw prompt (no chat template) and how much to say. ``reuse``: earlier prefixes count."""

    prompt: str
    tokens: int
    job_class: str = ""
    reuse: bool = False


class Side(Protocol):
    """A server under test."""

    text_mark: bytes
    """What every piece of text has on the wire and nothing else has."""

    def begin(self, work: Work) -> int:
        """Ask; the descriptor to read the answer from, which is the reader's to close."""

    def tokens(self, answer: bytes) -> int:
        """How many tokens a whole answer says it has. Raises SystemExit for a failed one."""


@dataclass(slots=True)
class Taken:
    """One answer: times are of ``time.perf_counter``; ``times`` when text arrived."""

    began_s: float
    ended_s: float = 0.0
    times: list[float] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)
    tokens: int = 0

    @property
    def first_ms(self) -> float:
        return 1000 * (self.times[0] - self.began_s)

    @property
    def tokens_s(self) -> float:
        """Decoding speed: first text to last text."""
        return (self.tokens - 1) / (self.times[-1] - self.times[0])

    @property
    def gaps_ms(self) -> list[float]:
        return [1000 * (b - a) for a, b in zip(self.times, self.times[1:], strict=False)]


def run(
    side: Side,
    works: Sequence[Work],
    beside: Callable[[int], Work] | None = None,
    then: Sequence[Work] = (),
) -> list[Taken]:
    """Begin all at once, read all to their ends; ``then`` is begun when all have said something.
    ``beside(n)`` gives one more stream at a time that is kept going meanwhile, and dropped at
    the end."""
    with contextlib.ExitStack() as stack:
        reader = _Reader(stack.enter_context(selectors.DefaultSelector()))
        if beside is not None:
            reader.keep_up(side, beside)
            time.sleep(0.1)  # it has begun
        taken = [reader.begin(side, work) for work in works]
        while then or any(not one.ended_s for one in taken):
            reader.turn()
            if then and all(one.times for one in taken):
                taken += [reader.begin(side, work) for work in then]
                then = ()
            if beside is not None:
                reader.keep_up(side, beside)
        reader.drop()
    for one in taken:
        one.tokens = side.tokens(bytes(one.data))
    return taken


class _Reader:
    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._beside: Taken | None = None
        self._count = 0

    def begin(self, side: Side, work: Work) -> Taken:
        taken = Taken(time.perf_counter())
        fd = side.begin(work)
        self._selector.register(fd, selectors.EVENT_READ, (taken, side.text_mark))
        return taken

    def keep_up(self, side: Side, beside: Callable[[int], Work]) -> None:
        if self._beside is None or self._beside.ended_s:
            self._beside = self.begin(side, beside(self._count))
            self._count += 1

    def turn(self) -> None:
        for key, _events in self._selector.select(120.0) or _late():
            taken, mark = key.data
            data = os.read(key.fd, 1 << 16)
            now_s = time.perf_counter()
            if not data:
                self._selector.unregister(key.fd)
                os.close(key.fd)
                taken.ended_s = now_s
                continue
            if mark in data:
                taken.times.append(now_s)
            taken.data += data

    def drop(self) -> None:
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
            os.close(key.fd)


def _late() -> list[tuple[selectors.SelectorKey, int]]:
    raise SystemExit("cannot measure: nothing came for two minutes")


def aggregate_tokens_s(taken: Sequence[Taken]) -> float:
    """All tokens over the time from the first question to the last word."""
    began_s = min(one.began_s for one in taken)
    return sum(one.tokens for one in taken) / (max(one.times[-1] for one in taken) - began_s)


def percentile(values: Sequence[float], percent: float) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def prose(words: int, seed: int) -> str:
    """Text without sense that shares no beginning with that of another seed."""
    draw = Random(seed)
    return f"{seed}: " + " ".join(draw.choices(WORDS, k=words))


def alternating(pairs: int) -> Iterator[tuple[int, bool]]:
    """(index, whether we go first): whoever is second finds a warmer machine."""
    for index in range(pairs):
        yield index, index % 2 == 0
