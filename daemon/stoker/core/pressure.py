"""How short memory is, and what is given back when: calm, tight or critical, without flapping.

Pure: ``step(state, Look) -> (state, actions)``. A level rises when two looks in a row say so
(critical: at once) and falls one step after a long calm. Contexts shrink only while nobody
uses them, and grow back later each time that growing brought the shortage back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from stoker.events.memory import Pressure
from stoker.units import Seconds

LONGEST_WAIT_S: Final = Seconds(4 * 3600.0)
_FAR: Final = Seconds(float("-inf"))


class Level(IntEnum):
    CALM = 0
    TIGHT = 1
    CRITICAL = 2

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Rules:
    """``tight_pct`` of time some task, ``critical_pct`` all tasks waited for memory; half of
    that counts as calm. Free memory below half of ``reserve_bytes`` is tight, below a quarter
    critical: where the kernel tells no pressure that is all there is.
    """

    tight_pct: float = 10.0
    critical_pct: float = 10.0
    reserve_bytes: int = 0
    calm_after_s: Seconds = Seconds(30.0)  # so long below a level, and it falls
    settle_s: Seconds = Seconds(10.0)  # between two reliefs: a context takes time to go
    grow_after_s: Seconds = Seconds(300.0)


@dataclass(frozen=True, slots=True)
class Look:
    """``idle``: no job in the runner and none waiting. ``shrunk``: it had a larger context."""

    now_s: Seconds
    pressure: Pressure | None
    available_bytes: int
    idle: bool = False
    shrunk: bool = False
    least: bool = False  # the context is as small as it may be


@dataclass(frozen=True, slots=True)
class Evict:
    """Results and cached prefixes go: what nobody waits for."""


@dataclass(frozen=True, slots=True)
class Shrink:
    """The context anew, smaller: only this gives the key-value cache's memory back."""


@dataclass(frozen=True, slots=True)
class Grow:
    """Load anew as configured, if it fits by now."""


Action = Evict | Shrink | Grow


@dataclass(frozen=True, slots=True)
class State:
    level: Level = Level.CALM
    since_s: Seconds = _FAR  # of this level
    above: bool = False  # the last look was above the level
    below_since_s: Seconds | None = None
    relieved_s: Seconds = _FAR  # the last eviction
    resized_s: Seconds = _FAR
    grown_s: Seconds = _FAR
    grow_wait_s: Seconds | None = None  # None = as the rules say


def step(state: State, look: Look, rules: Rules) -> tuple[State, tuple[Action, ...]]:
    """The next state and what to do now."""
    after = _judge(state, look, rules)
    actions: list[Action] = []
    rose = after.level > state.level
    if after.level is not Level.CALM:
        again = after.level is Level.CRITICAL and _past(after.relieved_s, look, rules.settle_s)
        if rose or again:
            after = replace(after, relieved_s=look.now_s)
            actions.append(Evict())
        if _may_shrink(after, look, rules):
            soon = look.now_s - after.grown_s < _grow_wait(after, rules)
            wait = min(2 * _grow_wait(after, rules), LONGEST_WAIT_S) if soon else None
            after = replace(
                after,
                resized_s=look.now_s,
                grow_wait_s=Seconds(wait) if wait is not None else after.grow_wait_s,
            )
            actions.append(Shrink())
    elif _may_grow(after, look, rules):
        after = replace(after, resized_s=look.now_s, grown_s=look.now_s)
        actions.append(Grow())
    return after, tuple(actions)


def severity(look: Look, rules: Rules) -> Level:
    """What this look alone says."""
    free, kept, seen = look.available_bytes, rules.reserve_bytes, look.pressure
    if 4 * free < kept or (seen is not None and seen.full_pct >= rules.critical_pct):
        return Level.CRITICAL
    if 2 * free < kept or (seen is not None and seen.some_pct >= rules.tight_pct):
        return Level.TIGHT
    return Level.CALM


def eased(look: Look, rules: Rules, level: Level) -> bool:
    """Clearly below this level: by half, so that nobody hovers at the edge."""
    half = replace(
        rules,
        tight_pct=rules.tight_pct / 2,
        critical_pct=rules.critical_pct / 2,
        reserve_bytes=2 * rules.reserve_bytes,
    )
    return severity(look, half) < level


def _judge(state: State, look: Look, rules: Rules) -> State:
    found = severity(look, rules)
    if found > state.level:
        if state.above or found is Level.CRITICAL:
            return replace(state, level=found, since_s=look.now_s, above=False, below_since_s=None)
        return replace(state, above=True, below_since_s=None)
    if state.level is Level.CALM or not eased(look, rules, state.level):
        return replace(state, above=False, below_since_s=None)
    since = state.below_since_s if state.below_since_s is not None else look.now_s
    if look.now_s - since < rules.calm_after_s:
        return replace(state, above=False, below_since_s=since)
    lower = Level(state.level - 1)
    return replace(state, level=lower, since_s=look.now_s, above=False, below_since_s=None)


def _may_shrink(state: State, look: Look, rules: Rules) -> bool:
    if not look.idle or look.least or eased(look, rules, state.level):
        return False
    return _past(state.resized_s, look, rules.settle_s) and _past(
        state.since_s, look, Seconds(0.0) if state.level is Level.CRITICAL else rules.settle_s
    )


def _may_grow(state: State, look: Look, rules: Rules) -> bool:
    wait = _grow_wait(state, rules)
    quiet = _past(state.since_s, look, wait) and _past(state.resized_s, look, wait)
    return look.idle and look.shrunk and quiet and severity(look, rules) is Level.CALM


def _grow_wait(state: State, rules: Rules) -> Seconds:
    return rules.grow_after_s if state.grow_wait_s is None else state.grow_wait_s


def _past(since: Seconds, look: Look, wait: Seconds) -> bool:
    return look.now_s - since >= wait
