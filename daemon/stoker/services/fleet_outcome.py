"""What a command at work is, and how it can end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from stoker.errors import Cancelled, Dependency, InvalidRequest, NotFound, StokerError
from stoker.events.fleet import Record
from stoker.ports.fleet import Letter

ADOPTED: Final = "adopted"
"""Noted by a deed that found its work going on after a restart."""
_REJECTING: Final = (InvalidRequest, NotFound, Dependency)


@dataclass(frozen=True, slots=True)
class Outcome:
    """``what``: done | broken | refused | canceled, as the table of commands has them."""

    what: str
    code: str = ""
    text: str = ""
    data: Mapping[str, object] = field(default_factory=dict)
    letters: Sequence[Letter] = ()


class Deed(Protocol):
    """A command at work. Neither method waits."""

    def poll(self) -> Outcome | None: ...

    def cancel(self) -> bool:
        """False when it can no longer be stopped."""


class SteppedDeed(ABC):
    """Goes on by ``_step`` and ends by its errors; once begun it cannot be stopped."""

    def poll(self) -> Outcome | None:
        try:
            return self._step()
        except Exception as error:
            return ending(error)

    def cancel(self) -> bool:
        return False

    @abstractmethod
    def _step(self) -> Outcome | None: ...


class Deeds(Protocol):
    def begin(self, record: Record, note: Callable[[Mapping[str, object]], None]) -> Deed:
        """``note``: on the disk before the effect, for the time after a cut. StokerError."""


def ending(error: BaseException) -> Outcome:
    """How a command ends by an error."""
    if isinstance(error, Cancelled):
        return Outcome("canceled", error.code, error.message)
    if isinstance(error, StokerError):
        what = "refused" if isinstance(error, _REJECTING) else "broken"
        hint = f" ({error.hint})" if error.hint else ""
        return Outcome(what, error.code, error.message + hint)
    return Outcome("broken", "internal", f"{type(error).__name__}: {error}")
