"""A campaign's plan, and when it goes on: a table of states, thresholds as whole devices.

Never a next step below the success threshold, never on past the abort threshold, and a
percentage never shrinks. Time and counts are parameters; publishing is the caller's. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from stoker_ota.core.fields import MAX_VERSION, NAME
from stoker_ota.core.topics import LEVEL
from stoker_ota.errors import InvalidRequest

MAX_GROUPS: Final = 32
MAX_STEPS: Final = 32
RUNNING, WAITING, PAUSED = "running", "waiting", "paused"
SUCCEEDED, ABORTED = "succeeded", "aborted"
PHASES: Final = (RUNNING, WAITING, PAUSED, SUCCEEDED, ABORTED)
OVER: Final = (SUCCEEDED, ABORTED)
PUBLISH, NEXT = "publish", "next"
_WINDOW: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True, slots=True)
class Plan:
    """``steps`` are percentages that rise. ``success`` and ``abort`` are percentages of the devices
    that a step has reached. ``window`` (HH:MM-HH:MM in UTC, "" = always) is when steps begin;
    ``soak_s`` is waited after a step's success. A reached device that is away for ``lost_s`` counts
    as failed until it is back.
    """

    id: str
    groups: tuple[str, ...]
    deployment: str
    version: int
    steps: tuple[float, ...] = (5.0, 25.0, 100.0)
    success: float = 90.0
    abort: float = 10.0
    soak_s: int = 0
    window: str = ""
    lost_s: int = 1800

    @property
    def update(self) -> dict[str, object]:
        """The desired state's section. ``retry`` makes it another wish than that of any other
        campaign, so that what devices say of it is of this one.
        """
        return {"deployment": self.deployment, "version": self.version, "retry": self.id}


@dataclass(frozen=True, slots=True)
class Counts:
    """Devices. ``members`` are in the groups; ``reached`` of them are in the present step, of which
    the rest is on its way.
    """

    members: int = 0
    reached: int = 0
    succeeded: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """``turn`` rises with every change that is published; ``since_s`` is when the step was met."""

    phase: str = RUNNING
    at: int = 0
    turn: int = 1
    since_s: float = 0.0

    @property
    def over(self) -> bool:
        return self.phase in OVER


TABLE: Final[dict[tuple[str, str], tuple[str, tuple[str, ...]]]] = {
    (RUNNING, "unmet"): (RUNNING, ()),
    (RUNNING, "met"): (WAITING, ()),
    (RUNNING, "failing"): (ABORTED, (PUBLISH,)),
    (RUNNING, "pause"): (PAUSED, (PUBLISH,)),
    (RUNNING, "abort"): (ABORTED, (PUBLISH,)),
    (WAITING, "unmet"): (RUNNING, ()),  # more devices have come
    (WAITING, "met"): (WAITING, ()),
    (WAITING, "due"): (RUNNING, (NEXT, PUBLISH)),
    (WAITING, "done"): (SUCCEEDED, (PUBLISH,)),
    (WAITING, "failing"): (ABORTED, (PUBLISH,)),
    (WAITING, "pause"): (PAUSED, (PUBLISH,)),
    (WAITING, "abort"): (ABORTED, (PUBLISH,)),
    (PAUSED, "unmet"): (PAUSED, ()),
    (PAUSED, "met"): (PAUSED, ()),
    (PAUSED, "failing"): (ABORTED, (PUBLISH,)),  # of those that were under way
    (PAUSED, "resume"): (RUNNING, (PUBLISH,)),
    (PAUSED, "abort"): (ABORTED, (PUBLISH,)),
}
"""(phase, event) → (phase, actions). What is over stays as it is."""


def step(plan: Plan, state: State, event: str, now_s: float) -> tuple[State, tuple[str, ...]]:
    """``event`` is ``judged``'s word or an operator's: pause, resume, abort. InvalidRequest for an
    operator's word that makes no sense now.
    """
    found = TABLE.get((state.phase, event))
    if found is None:
        if event in ("pause", "resume", "abort"):
            raise InvalidRequest(f"cannot {event} campaign {plan.id}: it is {state.phase}")
        return state, ()
    phase, actions = found
    at = min(state.at + 1, len(plan.steps) - 1) if NEXT in actions else state.at
    turn = state.turn + 1 if PUBLISH in actions else state.turn
    since = now_s if phase == WAITING != state.phase else state.since_s
    return replace(state, phase=phase, at=at, turn=turn, since_s=since), actions


def judged(plan: Plan, state: State, counts: Counts, now: datetime) -> str:
    """What the devices' counts mean: unmet, met, due (the next step), done (the last) or failing.

    A step that has reached nobody is met, once anybody of the groups is known.
    """
    if counts.reached and counts.failed * 100 >= plan.abort * counts.reached:
        return "failing"
    if not counts.members or counts.succeeded * 100 < plan.success * counts.reached:
        return "unmet"
    if state.phase != WAITING or now.timestamp() - state.since_s < plan.soak_s:
        return "met"
    if state.at == len(plan.steps) - 1:
        return "done"
    return "due" if is_open(plan.window, now) else "met"


def percent(plan: Plan, state: State) -> float:
    return plan.steps[state.at]


def is_open(window: str, now: datetime) -> bool:
    """One that ends before it begins goes over midnight."""
    match = _WINDOW.fullmatch(window)
    if match is None:
        return not window
    begin, end = (int(match[n]) * 60 + int(match[n + 1]) for n in (1, 3))
    minute = now.hour * 60 + now.minute
    return begin <= minute < end if begin < end else minute >= begin or minute < end


def checked(plan: Plan) -> Plan:
    """InvalidRequest for a plan that makes no sense."""

    def refuse(reason: str) -> InvalidRequest:
        return InvalidRequest(f"cannot plan campaign {plan.id[:64]!r}: {reason}")

    if not LEVEL.fullmatch(plan.id):
        raise refuse("its id has not 1..64 letters, digits, - and _")
    if not 0 < len(plan.groups) <= MAX_GROUPS or len(set(plan.groups)) < len(plan.groups):
        raise refuse(f"1 to {MAX_GROUPS} different groups")
    if not all(LEVEL.fullmatch(group) for group in plan.groups):
        raise refuse("a group's name has letters, digits, - and _")
    if not NAME.fullmatch(plan.deployment) or not 0 < plan.version <= MAX_VERSION:
        raise refuse("it needs a deployment's name and version")
    rising = all(a < b for a, b in zip(plan.steps, plan.steps[1:], strict=False))
    if not 0 < len(plan.steps) <= MAX_STEPS or not rising:
        raise refuse(f"1 to {MAX_STEPS} steps that rise")
    if not plan.steps[0] > 0 or plan.steps[-1] > 100:
        raise refuse("steps are percentages above 0 and up to 100")
    if not (0 < plan.success <= 100 and 0 < plan.abort <= 100):
        raise refuse("thresholds are percentages above 0 and up to 100")
    if plan.success + plan.abort > 100:
        raise refuse("success and abort threshold together are more than 100 %: it could hang")
    if plan.window and not _WINDOW.fullmatch(plan.window):
        raise refuse(f"{plan.window[:20]!r} is no window such as 22:00-06:00 (UTC)")
    if not (0 <= plan.soak_s <= 86_400 * 30 and 0 < plan.lost_s <= 86_400 * 30):
        raise refuse("waits are 0 to 2592000 s")
    return plan
