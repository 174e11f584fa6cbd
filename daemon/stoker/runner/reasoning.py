"""Splits DeepSeek-R1 style ``<think>…</think>`` from the answer, across token borders.

Only reasoning at the very start counts (or one that the prompt already opened): a
model that quotes the tag in its answer is not cut. Pure.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

OPEN: Final = "<think>"
CLOSE: Final = "</think>"


def opened_by(prompt: str) -> bool:
    """True when the rendered prompt ends inside ``<think>``."""
    return prompt.rstrip().endswith(OPEN)


class _State(Enum):
    START = auto()  # nothing seen but white space and part of the opening tag
    THINK_EDGE = auto()  # just inside: line breaks at the edge are dropped
    THINK = auto()
    ANSWER_EDGE = auto()
    ANSWER = auto()


class ReasoningSplitter:
    """``feed`` returns (answer, reasoning); any split of the text gives the same two."""

    __slots__ = ("_held", "_state")

    def __init__(self, *, inside: bool = False, enabled: bool = True) -> None:
        self._held = ""
        self._state = _State.THINK_EDGE if inside else _State.START
        if not enabled:
            self._state = _State.ANSWER

    @property
    def passing(self) -> bool:
        """Nothing but answer can come any more."""
        return self._state is _State.ANSWER

    @property
    def thinking(self) -> bool:
        return self._state in (_State.THINK_EDGE, _State.THINK)

    def feed(self, text: str) -> tuple[str, str]:
        if self._state is _State.ANSWER:
            return text, ""
        answer, reasoning = "", ""
        self._held += text
        before = None
        while self._held and before != (self._state, self._held):
            before = self._state, self._held
            match self._state:
                case _State.START:
                    answer += self._start()
                case _State.THINK:
                    reasoning += self._think()
                case _State.ANSWER:
                    answer += self._held
                    self._held = ""
                case _:
                    self._edge()
        return answer, reasoning

    def flush(self) -> tuple[str, str]:
        """What was held back at the end of the text."""
        held, self._held = self._held, ""
        return ("", held) if self.thinking else (held, "")

    def _start(self) -> str:
        body = self._held.lstrip()
        if body.startswith(OPEN):
            self._held = body[len(OPEN) :]
            self._state = _State.THINK_EDGE
            return ""
        if OPEN.startswith(body):  # also while there is only white space
            return ""
        self._state = _State.ANSWER
        text, self._held = self._held, ""
        return text

    def _edge(self) -> None:
        self._held = self._held.lstrip("\r\n")
        if self._held:
            inside = self._state is _State.THINK_EDGE
            self._state = _State.THINK if inside else _State.ANSWER

    def _think(self) -> str:
        at = self._held.find(CLOSE)
        if at >= 0:
            text = self._held[:at]
            self._held = self._held[at + len(CLOSE) :]
            self._state = _State.ANSWER_EDGE
            return text
        keep = next((n for n in range(len(CLOSE) - 1, 0, -1) if self._held.endswith(CLOSE[:n])), 0)
        cut = len(self._held) - keep
        text, self._held = self._held[:cut], self._held[cut:]
        return text
