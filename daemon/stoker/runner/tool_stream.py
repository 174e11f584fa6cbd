"""Takes tool calls out of a stream of text, however it is cut. Pure.

What may still become a mark is held back, so half a tag never goes out; a call that turns
out to be none goes out as the text it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from stoker.events.prompt import ToolCall
from stoker.runner import tool_forms
from stoker.runner.tool_forms import Form, Reading

MAX_CALL_CHARS: Final = 256 * 1024
MAX_CALLS: Final = 64
MAX_END_MARKS: Final = 16  # in the texts of one call


class ToolStream:
    """``calls`` fills up as text comes; ``new_id`` names a call."""

    __slots__ = (
        "_first",
        "_form",
        "_fresh",
        "_held",
        "_inside",
        "_marks",
        "_new_id",
        "_next",
        "_offered",
        "_started",
        "_taken",
        "calls",
    )

    def __init__(
        self, form: Form, offered: Mapping[str, object], new_id: Callable[[], str]
    ) -> None:
        """``offered``: the tools' names → schemas of their arguments."""
        self._form = form
        self._offered = offered
        self._new_id = new_id
        self._held = ""
        self._inside = False
        self._next = self._marks = 0  # where to look for an end mark; how many were none
        self._first = 0  # where the text goes on after the first of those
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
        out = ""
        while self._inside:
            body = self._held.removeprefix(self._form.start)
            body = body[: len(body) - _partial(body, self._form.end)]
            if self._take(self._read(body)):
                self._leave(len(self._held))
            else:
                out += self._give_up() + self.feed("")
        held, self._held = self._held, ""
        return out + ("" if self._fresh and not held.strip() else held)

    def _outside(self) -> str:
        if self._form.bare and not self._started and self._begins_bare():
            return ""
        start = self._form.start
        at = self._held.find(start)
        if at >= 0:
            text, self._held = self._held[:at], self._held[at:]
            self._inside, self._next = True, len(start)
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
            return self._give_up()
        while end and (at := self._held.find(end, self._next)) >= 0:
            reading = self._read(self._held[len(self._form.start) : at])
            self._next = at + len(end)
            if self._take(reading):
                self._leave(self._next)
                return ""
            self._first = self._first or self._next
            self._marks += 1
            if not reading.cut or self._marks >= MAX_END_MARKS:
                return self._give_up()
        self._next = max(self._next, len(self._held) - len(end) + 1)
        return ""

    def _give_up(self) -> str:
        """It is no call; what stands after its first end mark may be one."""
        text = self._leave(self._first or len(self._held))
        self._started, self._fresh = True, False
        return text

    def _leave(self, size: int) -> str:
        text, self._held = self._held[:size], self._held[size:]
        self._inside = False
        self._first = self._next = self._marks = 0
        return text

    def _read(self, body: str) -> Reading:
        return tool_forms.read(self._form, body, self._offered)

    def _take(self, reading: Reading) -> bool:
        found = reading.calls
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
