"""Changing the model under load: what happens next, whatever dies in the middle.

Pure: ``step(state, look) -> (state, actions)``. A look is what is so now (jobs running, both
runners, the probe's verdict), so that no event can be missed or come twice. While memory
holds both, the new model is loaded and probed beside the old one, which serves on; else the
old one is unloaded before. Running jobs drain up to a limit. Failure leads back to the old.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from stoker.units import Bytes, Seconds

FIRST_LOAD_S: Final = Seconds(10.0)  # how long a load is thought to take before one was seen
SHORTEST_ETA_S: Final = Seconds(1.0)
UNLOAD_S: Final = Seconds(1.0)  # what ending a runner usually takes
UNLOAD_LIMIT_S: Final = Seconds(120.0)  # a process that the kernel does not let go
RETURN_LIMIT_S: Final = Seconds(900.0)
OVERHEAD: Final = 1.25  # of a loaded model over its file: key-value cache, compute buffers
SPARE_BYTES: Final = Bytes(256 << 20)


class Phase(StrEnum):
    IDLE = "idle"
    STAGING = "staging"  # the new model loads beside the old one, which serves
    PROBING = "probing"  # and shows that it can answer
    HANDOVER = "handover"  # it can; new work waits, running jobs end
    DRAINING = "draining"  # memory holds one: new work waits, running jobs end
    UNLOADING = "unloading"  # the old runner ends
    LOADING = "loading"  # the new one loads, alone
    TRYING = "trying"  # and shows that it can answer
    CLEARING = "clearing"  # it cannot: it ends
    RETURNING = "returning"  # the old model loads again


class Old(StrEnum):
    """The runner of the model that served before."""

    READY = "ready"
    AWAY = "away"  # it loads, restarts or ends
    HOPELESS = "hopeless"  # it has no model that works
    GONE = "gone"  # there is no process


class New(StrEnum):
    NONE = "none"
    COMING = "coming"
    CRAMPED = "cramped"  # it would load as wished only without the old one
    READY = "ready"
    LOST = "lost"  # it died, or cannot load the model
    GONE = "gone"  # there is no process any more


@dataclass(frozen=True, slots=True)
class Look:
    """What is so now. ``verdict``: None = the probe runs, "" = good, else what is wrong."""

    now_s: Seconds
    running: int = 0
    old: Old = Old.READY
    new: New = New.NONE
    why: str = ""  # the new one is lost
    verdict: str | None = None


@dataclass(frozen=True, slots=True)
class Begin:
    now_s: Seconds
    model: str
    old: str
    beside: bool  # memory holds both
    drain_s: Seconds
    load_s: Seconds = Seconds(0.0)  # as learnt; 0 = not known
    old_load_s: Seconds = Seconds(0.0)


@dataclass(frozen=True, slots=True)
class Stage:
    """Start a second runner with the new model."""


@dataclass(frozen=True, slots=True)
class Prove:
    """Let the new model answer something."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Send no further jobs to the runner; those that run go on."""


@dataclass(frozen=True, slots=True)
class Release:
    pass


@dataclass(frozen=True, slots=True)
class Switch:
    """The new runner serves. What still runs in the old one is preempted; it ends."""


@dataclass(frozen=True, slots=True)
class Unload:
    """The old runner ends; what still runs there is preempted."""


@dataclass(frozen=True, slots=True)
class Dismiss:
    """The new runner ends."""


@dataclass(frozen=True, slots=True)
class Return:
    """The old model is started again and serves as before."""


@dataclass(frozen=True, slots=True)
class Finish:
    """``reason`` "" = the new model serves; else why it does not."""

    reason: str = ""


Action = Stage | Prove | Hold | Release | Switch | Unload | Dismiss | Return | Finish


@dataclass(frozen=True, slots=True)
class State:
    phase: Phase = Phase.IDLE
    model: str = ""
    old: str = ""
    since_s: Seconds = Seconds(0.0)  # of the phase
    drain_s: Seconds = Seconds(30.0)
    load_s: Seconds = FIRST_LOAD_S
    old_load_s: Seconds = FIRST_LOAD_S
    reason: str = ""  # why we go back

    @property
    def active(self) -> bool:
        return self.phase is not Phase.IDLE

    @property
    def down(self) -> bool:
        """No model serves."""
        return self.phase in _DOWN

    @property
    def holding(self) -> bool:
        """New work waits."""
        return self.phase in (Phase.HANDOVER, Phase.DRAINING)


Result = tuple[State, tuple[Action, ...]]


class IllegalMove(AssertionError):
    """A handler left the table: a fault of ours."""


def begin(state: State, event: Begin) -> Result:
    """Only from IDLE; whoever asks looks first."""
    if state.active:
        raise IllegalMove(f"{state.phase} --Begin")
    fresh = State(
        model=event.model,
        old=event.old,
        drain_s=event.drain_s,
        load_s=event.load_s or FIRST_LOAD_S,
        old_load_s=event.old_load_s or FIRST_LOAD_S,
    )
    if event.beside:
        return _enter(fresh, Phase.STAGING, event.now_s), (Stage(),)
    return _enter(fresh, Phase.DRAINING, event.now_s), (Hold(),)


def step(state: State, look: Look) -> Result:
    """One step; call again while it gives actions, since they change what is so."""
    handler, targets = TABLE[state.phase]
    after, actions = handler(state, look)
    if after.phase not in targets and after.phase is not state.phase:
        raise IllegalMove(f"{state.phase} --> {after.phase}")
    return after, actions


def holds_both(size: Bytes, available: Bytes) -> bool:
    """Free memory holds a model of this file size beside what runs now."""
    return size >= 0 and size * OVERHEAD + SPARE_BYTES <= available


def eta_s(state: State, now_s: Seconds) -> Seconds:
    """Estimated time until jobs are sent to a runner again; 0 while they are."""
    passed = now_s - state.since_s
    left = {
        Phase.HANDOVER: state.drain_s - passed,
        Phase.DRAINING: max(state.drain_s - passed, 0.0) + UNLOAD_S + state.load_s,
        Phase.UNLOADING: UNLOAD_S - passed + state.load_s,
        Phase.LOADING: state.load_s - passed,
        Phase.TRYING: SHORTEST_ETA_S,
        Phase.CLEARING: UNLOAD_S - passed + state.old_load_s,
        Phase.RETURNING: state.old_load_s - passed,
    }.get(state.phase)
    return Seconds(0.0 if left is None else max(left, SHORTEST_ETA_S))


def _enter(state: State, phase: Phase, now: Seconds) -> State:
    return replace(state, phase=phase, since_s=now)


def _end(look: Look, reason: str, *before: Action) -> Result:
    return _enter(State(), Phase.IDLE, look.now_s), (*before, Finish(reason))


def _idle(state: State, _look: Look) -> Result:
    return state, ()


def _staging(state: State, look: Look) -> Result:
    if look.new is New.READY:
        return _enter(state, Phase.PROBING, look.now_s), (Prove(),)
    if look.new is New.CRAMPED:
        return _enter(state, Phase.DRAINING, look.now_s), (Dismiss(), Hold())
    if look.new is not New.COMING:
        return _end(look, _why(look), Dismiss())
    return state, ()


def _probing(state: State, look: Look) -> Result:
    bad = _bad(look)
    if bad:
        return _end(look, bad, Dismiss())
    if look.verdict is None:
        return state, ()
    return _enter(state, Phase.HANDOVER, look.now_s), (Hold(),)


def _handover(state: State, look: Look) -> Result:
    if look.new is not New.READY:
        return _end(look, _why(look), Dismiss(), Release())
    if _drained(state, look):
        return _end(look, "", Switch(), Release())
    return state, ()


def _draining(state: State, look: Look) -> Result:
    if _drained(state, look):
        return _enter(state, Phase.UNLOADING, look.now_s), (Unload(),)
    return state, ()


def _unloading(state: State, look: Look) -> Result:
    if look.old is Old.GONE and look.new in (New.NONE, New.GONE):  # all memory is free again
        return _enter(state, Phase.LOADING, look.now_s), (Stage(),)
    if look.now_s - state.since_s >= UNLOAD_LIMIT_S:
        back = replace(state, reason="the old runner does not end")
        return _enter(back, Phase.RETURNING, look.now_s), (Return(), Release())
    return state, ()


def _loading(state: State, look: Look) -> Result:
    if look.new is New.READY:
        return _enter(state, Phase.TRYING, look.now_s), (Prove(),)
    return (state, ()) if look.new is New.COMING else _clear(state, look, _why(look))


def _trying(state: State, look: Look) -> Result:
    bad = _bad(look)
    if bad:
        return _clear(state, look, bad)
    return (state, ()) if look.verdict is None else _end(look, "", Switch(), Release())


def _clear(state: State, look: Look, reason: str) -> Result:
    return _enter(replace(state, reason=reason), Phase.CLEARING, look.now_s), (Dismiss(),)


def _clearing(state: State, look: Look) -> Result:
    stuck = look.now_s - state.since_s >= UNLOAD_LIMIT_S
    if look.new in (New.GONE, New.NONE) or stuck:
        return _enter(state, Phase.RETURNING, look.now_s), (Return(), Release())
    return state, ()


def _returning(state: State, look: Look) -> Result:
    late = look.now_s - state.since_s >= RETURN_LIMIT_S
    if look.old in (Old.READY, Old.HOPELESS) or late:
        return _end(look, state.reason)
    return state, ()


def _bad(look: Look) -> str:
    """Why the new model must not serve."""
    return (look.verdict or "") if look.new is New.READY else _why(look)


def _why(look: Look) -> str:
    return look.why or "its runner is gone"


def _drained(state: State, look: Look) -> bool:
    return not look.running or look.now_s - state.since_s >= state.drain_s


Handler = Callable[[State, Look], Result]
_P = Phase
_DOWN: Final = (_P.UNLOADING, _P.LOADING, _P.TRYING, _P.CLEARING, _P.RETURNING)
TABLE: Final[dict[Phase, tuple[Handler, frozenset[Phase]]]] = {
    _P.IDLE: (_idle, frozenset()),
    _P.STAGING: (_staging, frozenset({_P.PROBING, _P.DRAINING, _P.IDLE})),
    _P.PROBING: (_probing, frozenset({_P.HANDOVER, _P.IDLE})),
    _P.HANDOVER: (_handover, frozenset({_P.IDLE})),
    _P.DRAINING: (_draining, frozenset({_P.UNLOADING})),
    _P.UNLOADING: (_unloading, frozenset({_P.LOADING, _P.RETURNING})),
    _P.LOADING: (_loading, frozenset({_P.TRYING, _P.CLEARING})),
    _P.TRYING: (_trying, frozenset({_P.IDLE, _P.CLEARING})),
    _P.CLEARING: (_clearing, frozenset({_P.RETURNING})),
    _P.RETURNING: (_returning, frozenset({_P.IDLE})),
}
