"""Takes tool calls out of a stream of text, however it is cut. Pure.

What may still become a mark is held back, so half a tag never goes out; a call that turns
out to be none goes out as the text it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from stoker.events.prompt import ToolCall
from stoker.runner import tool_forms
from stoker.runner.tool_forms import Form

MAX_CALL_CHARS: Final = 256 * 1024
MAX_CALLS: Final = 64


class ToolStream:
    """``calls`` fills up as text comes; ``new_id`` names a call."""

    __slots__ = (
        "_form",
        "_fresh",
        "_held",
        "_inside",
        "_names",
        "_new_id",
        "_started",
        "_taken",
        "calls",
    )

    def __init__(self, form: Form, names: Sequence[str], new_id: Callable[[], str]) -> None:
        self._form = form
        self._names = tuple(names)
        self._new_id = new_id
        self._held = ""
        self._inside = False
        self._started = False  # something but white space has come
        self._fresh = False  # nothing but white space has come since the last call
        self.calls: list[ToolCall] = []
        self._taken = 0

    @property
    def any(self) -> bool:
        return bool(self.calls)

    def take(self) -> tuple[ToolCall, ...]:
        """Calls that were not taken yet."""
        fresh = tuple(self.calls[self._taken :])
        self._taken = len(self.calls)
        return fresh

    def feed(self, text: str) -> str:
        """The text that is no call."""
        self._held += text
        out = ""
        before = None
        while self._held and before != (self._inside, len(self._held)):
            before = self._inside, len(self._held)
            out += self._within() if self._inside else self._outside()
        return out

    def finish(self) -> str:
        """The answer has ended: a call that only lacks its end mark is one all the same."""
        held, self._held = self._held, ""
        if not self._inside:
            return "" if self._fresh and not held.strip() else held
        self._inside = False
        body = held.removeprefix(self._form.start)
        body = body[: len(body) - _partial(body, self._form.end)]
        return "" if self._take(body) else held

    def _outside(self) -> str:
        if self._form.bare and not self._started and self._begins_bare():
            return ""
        start = self._form.start
        at = self._held.find(start)
        if at >= 0:
            text, self._held = self._held[:at], self._held[at:]
            self._inside = True
            return self._seen(text)
        keep = _partial(self._held, start)
        if self._fresh and not self._held[: len(self._held) - keep].strip():
            return ""  # white space between calls, or after the last one
        cut = len(self._held) - keep
        text, self._held = self._held[:cut], self._held[cut:]
        return self._seen(text)

    def _begins_bare(self) -> bool:
        """Wait while there is only white space; then a brace opens a call."""
        body = self._held.lstrip()
        if not body:
            return True
        if body[0] == "{":
            self._inside = True
            return True
        return False

    def _within(self) -> str:
        end = self._form.end
        if len(self._held) > MAX_CALL_CHARS:
            return self._give_up(len(self._held))
        at = self._held.find(end) if end else -1
        if at < 0:
            return ""
        body = self._held[len(self._form.start) : at]
        if not self._take(body):
            return self._give_up(at + len(end))
        self._held = self._held[at + len(end) :]
        self._inside = False
        return ""

    def _give_up(self, size: int) -> str:
        text, self._held = self._held[:size], self._held[size:]
        self._inside = False
        self._started, self._fresh = True, False
        return text

    def _take(self, body: str) -> bool:
        found = tool_forms.read(self._form, body, self._names)
        if not found or len(self.calls) + len(found) > MAX_CALLS:
            return False
        self.calls += [ToolCall(self._new_id(), call.name, call.arguments) for call in found]
        self._started = self._fresh = True
        return True

    def _seen(self, text: str) -> str:
        if not text.strip():
            return "" if self._fresh else text
        self._started, self._fresh = True, False
        return text


def _partial(text: str, mark: str) -> int:
    """How many characters at the end of a text may be the begin of a mark."""
    return next((n for n in range(len(mark) - 1, 0, -1) if text.endswith(mark[:n])), 0)
