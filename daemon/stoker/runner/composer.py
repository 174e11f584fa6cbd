"""Token pieces of one job to what its reader gets: UTF-8, reasoning, stop strings.

Stop strings count in the answer only: a model may think in the words of a stop. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from stoker.runner.reasoning import ReasoningSplitter
from stoker.runner.stops import StopMatcher
from stoker.runner.utf8 import Utf8Stream


class Composer:
    """``feed`` and ``finish`` return (answer, reasoning)."""

    __slots__ = ("_reasoning", "_stops", "_utf8", "reasoning_tokens")

    def __init__(self, stops: Sequence[str], *, reasoning: bool, inside: bool) -> None:
        self._utf8 = Utf8Stream()
        self._reasoning = ReasoningSplitter(inside=inside and reasoning, enabled=reasoning)
        self._stops = StopMatcher(stops)
        self.reasoning_tokens = 0

    @property
    def stopped(self) -> bool:
        return self._stops.stopped

    def feed(self, piece: bytes) -> tuple[str, str]:
        if self._reasoning.passing:
            return self._stops.feed(self._utf8.feed(piece)), ""
        was_thinking = self._reasoning.thinking
        answer, reasoning = self._reasoning.feed(self._utf8.feed(piece))
        self.reasoning_tokens += was_thinking or self._reasoning.thinking
        return (self._stops.feed(answer) if answer else ""), reasoning

    def finish(self) -> tuple[str, str]:
        """Everything still held back. After a stop string nothing of the answer is."""
        answer, reasoning = self._reasoning.feed(self._utf8.flush())
        more_answer, more_reasoning = self._reasoning.flush()
        text = self._stops.feed(answer + more_answer) + self._stops.flush()
        return text, reasoning + more_reasoning
