"""What can happen to an update, and what the engine can be told to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from stoker_ota.values.deployment import Offer


class What(Enum):
    """What happened."""

    OFFERED = "offered"
    ALLOWED = "allowed"  # draw, window and inhibitors say yes
    NOT_YET = "not-yet"
    DONE = "done"  # the action of the phase succeeded
    NO_SPACE = "no-space"
    BROKEN = "broken"  # bytes are not what they must be: a delta's or a result's hash
    ERROR = "error"  # the action failed and will fail again
    NO_MEMORY = "no-memory"  # for now: somebody else has it, or it is too much for this device
    RETRY = "retry"  # the action failed for now: the link, the source
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    CONFIRMED = "confirmed"
    CANCELLED = "cancelled"
    SPACE_FREED = "space-freed"
    GO_BACK = "go-back"  # an administrator wants the previous set
    RESTARTED = "restarted"


@dataclass(frozen=True, slots=True)
class Event:
    what: What
    offer: Offer | None = None  # OFFERED
    generation: int = 0  # DONE of staging: its number; RESTARTED: what ``current`` says
    previous: int = 0  # DONE of staging: what is committed now
    earlier: int = 0  # DONE of staging: what was committed before that
    manifest: str = ""  # GO_BACK: hash of the manifest that made what is left
    code: str = ""
    reason: str = ""


class Do(Enum):
    """What to do next. Each may be repeated without harm."""

    EVALUATE = "evaluate"  # draw, window, inhibitors → ALLOWED, NOT_YET
    PREFLIGHT = "preflight"
    FETCH = "fetch"
    APPLY = "apply"
    VERIFY = "verify"  # and make the set, not active
    ACTIVATE = "activate"
    TEST = "test"
    COMMIT = "commit"
    ROLL_BACK = "roll-back"
    CLEAN = "clean"  # staging and a generation that is neither current nor previous
    REPORT = "report"
    REFUSE = "refuse"  # the offer failed before: not again without --force
    WAIT = "wait"  # then repeat the phase's action
