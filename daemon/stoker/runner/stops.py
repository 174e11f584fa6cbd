"""Stop strings across token borders.

Text that may still become a stop string is held back; the stop string itself is never
given out, nor is anything after it. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stoker.errors import InvalidRequest

MAX_STOPS: Final = 16
MAX_STOP_CHARS: Final = 256


def check(stops: Sequence[str]) -> tuple[str, ...]:
    """The stops as given; raises InvalidRequest for empty, too many or too long ones."""
    if len(stops) > MAX_STOPS:
        raise InvalidRequest(
            f"cannot generate: more than {MAX_STOPS} stop strings", details={"path": "stop"}
        )
    for index, stop in enumerate(stops):
        if not 0 < len(stop) <= MAX_STOP_CHARS:
            raise InvalidRequest(
                f"cannot generate: stop[{index}] must have 1 to {MAX_STOP_CHARS} characters",
                details={"path": f"stop[{index}]"},
            )
    return tuple(stops)


class StopMatcher:
    """Earliest stop wins; of two that start at one place, the one that is whole first."""

    __slots__ = ("_held", "_longest", "_stops", "stopped")

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """Text that may go out now. After a stop was met, nothing more comes."""
        if self.stopped:
            return ""
        if not self._stops:
            return text
        if len(self._stops) == 1 and not self._held and self._stops[0][0] not in text:
            return text
        return self._scan(self._held + text)

    def flush(self) -> str:
        """What was held back and turned out to be no stop string."""
        held, self._held = self._held, ""
        return "" if self.stopped else held

    def _scan(self, text: str) -> str:
        # One character decides at a time, so that the result does not depend on how the
        # text was cut into pieces: the stop that completes first ends the text.
        best = min(
            ((found + len(stop), found) for stop in self._stops if (found := text.find(stop)) >= 0),
            default=None,
        )
        if best is not None:
            self.stopped = True
            self._held = ""
            return text[: best[1]]
        keep = self._partial(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def _partial(self, text: str) -> int:
        """Length of the longest suffix that is a proper prefix of a stop string."""
        for size in range(min(self._longest - 1, len(text)), 0, -1):
            tail = text[len(text) - size :]
            if any(stop.startswith(tail) for stop in self._stops):
                return size
        return 0
