"""Token pieces of one job to what its reader gets: UTF-8, reasoning, stop strings.

Stop strings count in the answer only: a model may think in the words of a stop. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from stoker.events.prompt import ToolCall
from stoker.runner.reasoning import ReasoningSplitter
from stoker.runner.stops import StopMatcher
from stoker.runner.tool_stream import ToolStream
from stoker.runner.utf8 import Utf8Stream


class Composer:
    """``feed`` and ``finish`` return (answer, reasoning)."""

    __slots__ = ("_reasoning", "_stops", "_tools", "_utf8", "reasoning_tokens")

    def __init__(
        self,
        stops: Sequence[str],
        *,
        reasoning: bool,
        inside: bool,
        tools: ToolStream | None = None,
    ) -> None:
        self._utf8 = Utf8Stream()
        self._reasoning = ReasoningSplitter(inside=inside and reasoning, enabled=reasoning)
        self._stops = StopMatcher(stops)
        self._tools = tools
        self.reasoning_tokens = 0

    @property
    def stopped(self) -> bool:
        return self._stops.stopped

    @property
    def thinking(self) -> bool:
        return self._reasoning.thinking

    @property
    def called(self) -> bool:
        """The answer holds a tool call."""
        return self._tools is not None and self._tools.any

    def take_calls(self) -> tuple[ToolCall, ...]:
        """Tool calls that are whole and were not taken yet."""
        return self._tools.take() if self._tools is not None else ()

    def feed(self, piece: bytes) -> tuple[str, str]:
        if self._reasoning.passing:
            text = self._utf8.feed(piece)
            return self._stops.feed(self._tools.feed(text) if self._tools else text), ""
        was_thinking = self._reasoning.thinking
        answer, reasoning = self._reasoning.feed(self._utf8.feed(piece))
        self.reasoning_tokens += was_thinking or self._reasoning.thinking
        if answer and self._tools:
            answer = self._tools.feed(answer)
        return (self._stops.feed(answer) if answer else ""), reasoning

    def finish(self) -> tuple[str, str]:
        """Everything still held back. After a stop string nothing of the answer is."""
        answer, reasoning = self._reasoning.feed(self._utf8.flush())
        more_answer, more_reasoning = self._reasoning.flush()
        answer += more_answer
        if self._tools:
            answer = self._tools.feed(answer) + self._tools.finish()
        text = self._stops.feed(answer) + self._stops.flush()
        return text, reasoning + more_reasoning
