"""An update on its way: its phases, and what the journal remembers of it.

``core/machine.py`` decides how one becomes the other; ``core/journal.py`` writes it down.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

MAX_ATTEMPTS: Final = 2
"""Activations of one set; a crash while it is tested counts as one."""
MAX_MOVES: Final = 200
"""Transitions of one deployment: whatever goes round in circles ends."""
MAX_DELTA_FAILURES: Final = 2
MAX_MEMORY_FAILURES: Final = 5
"""Somebody else may have taken the memory; so often in a row it is the update that needs it."""
MAX_REMEMBERED: Final = 64


class Phase(Enum):
    IDLE = "idle"
    OFFERED = "offered"  # verified; rollout draw, window and inhibitors are asked
    WAIT_WINDOW = "wait-window"
    PREFLIGHT = "preflight"
    WAIT_SPACE = "wait-space"
    FETCHING = "fetching"
    APPLYING = "applying"
    VERIFYING = "verifying"
    STAGED = "staged"  # complete on disk, not active
    ACTIVATING = "activating"
    TESTING = "testing"
    COMMITTED = "committed"
    ROLLING_BACK = "rolling-back"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Offer:
    """A verified manifest that may be installed here."""

    deployment: str
    version: int
    manifest: str  # hex SHA-256 of the signed bytes
    allow_full: bool = True
    confirm: bool = False  # somebody must say yes after the tests
    forced: bool = False  # although the same manifest failed before


@dataclass(frozen=True, slots=True)
class Member:
    """One artifact of a generation. ``where``: the package's own file, "" = an object.
    ``base``: of an adapter, the hash of its model.
    """

    kind: str
    name: str
    version: str
    sha256: str
    where: str = ""
    base: str = ""


@dataclass(frozen=True, slots=True)
class Journal:
    """Everything that must survive a power cut."""

    phase: Phase = Phase.IDLE
    offer: Offer | None = None
    generation: int = 0  # the one in the making; 0 = none yet
    previous: int = 0  # what to return to
    earlier: int = 0  # what ``previous`` was before, for the case that this set fails
    attempts: int = 0
    moves: int = 0
    delta_failures: int = 0
    memory_failures: int = 0
    whole: bool = False  # deltas failed too often: fetch whole artifacts
    healthy: bool = False  # the tests passed; only the confirmation is missing
    code: str = ""  # why it waits, returns or failed
    reason: str = ""
    failed: tuple[str, ...] = ()  # manifests not to be tried again, oldest first
