"""When the runner is started, loaded, killed, waited for and which model it gets.

Pure: ``step(state, event) -> (state, actions)``; TABLE says which events count in which
phase and where they may lead. A runner that dies comes back with exponential backoff.
A model to blame for ``crash_limit`` crashes in the window, or that cannot be loaded, is
set aside with a reason and the next of (wanted, last good, others) is used. Not its fault:
a SIGKILL or SIGTERM from outside without the OOM killer's mark, and all before the Hello.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from signal import SIGKILL, SIGTERM
from typing import Any, Final

from stoker.config.schema import RestartConfig
from stoker.core.runner_life import (
    NOBODY_ASKS,
    Action,
    CloseLink,
    Event,
    Exited,
    Greeted,
    LaunchFailed,
    LinkLost,
    LoadDone,
    LoadFailed,
    LoadModel,
    Log,
    Phase,
    Proven,
    RememberGood,
    Restart,
    RunnerGone,
    SetAside,
    Signal,
    SignOfLife,
    Sleep,
    Spawn,
    Start,
    State,
    Stop,
    Tick,
    Wake,
)  # fmt: skip
from stoker.errors import InsufficientMemory
from stoker.units import Seconds

Result = tuple[State, tuple[Action, ...]]
MEMORY_AGAIN_S: Final = Seconds(60.0)
NEVER: Final = Seconds(float("inf"))


class IllegalMove(AssertionError):
    """A handler left the table: a fault of ours."""


def step(state: State, event: Event) -> Result:
    """The next state and what to do. Events that come too late change nothing."""
    row = TABLE[state.phase].get(type(event))
    if row is None:
        return state, ()
    handler, targets = row
    after, actions = handler(state, event)
    if after.phase not in targets:
        raise IllegalMove(f"{state.phase} --{type(event).__name__}--> {after.phase}")
    return after, actions


def candidate(state: State, now: Seconds) -> str:
    """The model to load now: wanted, then last good, then the others; "" = none."""
    for name in (*state.models[:1], state.last_good, *state.models[1:]):
        kept = state.aside.get(name)
        if name in state.models and (kept is None or kept.until_s <= now):
            return name
    return ""


def backoff_s(config: RestartConfig, failures: int) -> Seconds:
    """0, first, 2·first, 4·first … up to the cap."""
    if failures <= 0:
        return Seconds(0.0)
    return Seconds(min(config.backoff_first_s * 2.0 ** min(failures - 1, 60), config.backoff_cap_s))


def deadline_s(state: State) -> Seconds:
    """How long the present phase may go without a sign of life."""
    limits = {
        Phase.SPAWNING: state.runner.hello_timeout_s,
        Phase.LOADING: state.runner.load_stall_timeout_s,
        Phase.READY: state.runner.heartbeat_timeout_s,
    }
    return limits.get(state.phase, state.runner.stop_timeout_s)


def next_wake_s(state: State) -> Seconds:
    """When a Tick is due at the latest."""
    if state.phase in (Phase.BACKOFF, Phase.NO_MODEL):
        return state.wake_s
    if state.phase in (Phase.STOPPED, Phase.ASLEEP):
        return NEVER
    return Seconds(state.seen_s + deadline_s(state))


def _enter(state: State, phase: Phase, now: Seconds) -> State:
    return replace(state, phase=phase, since_s=now, seen_s=now)


def _start(state: State, event: Start | Tick | Exited | Restart | Wake) -> Result:
    now = event.now_s
    fresh = replace(state, order="", hung="", steady=False, asleep=False, greeted=False)
    wanted, model = replace(fresh, wanted=True), candidate(state, now)
    if model:
        return replace(_enter(wanted, Phase.SPAWNING, now), model=model), (Spawn(),)
    reason, wake = "no model is configured", NEVER
    aside = {name: kept for name, kept in state.aside.items() if name in state.models}
    if aside:
        name, kept = min(aside.items(), key=lambda item: item[1].until_s)
        reason, wake = f"model {name} is set aside: {kept.reason}", kept.until_s
    nothing = replace(wanted, model="", reason=reason, wake_s=wake)
    return _enter(nothing, Phase.NO_MODEL, now), (Log("error", reason),)


def _rest(state: State, event: Stop) -> Result:
    return _enter(replace(state, wanted=False), Phase.STOPPED, event.now_s), ()


def _dismiss(state: State, event: Stop) -> Result:
    return _leave(replace(state, wanted=False), event.now_s, "stopping")


def _give_up_on(state: State, _event: Stop) -> Result:
    """Already on its way out; only the respawn is called off."""
    return replace(state, wanted=False, order=state.order or "stopping"), ()


def _pardon(state: State) -> State:
    return replace(state, aside={}, crashes={}, failures=0, wanted=True, asleep=False)


def _replace_runner(state: State, event: Restart) -> Result:
    return _leave(_pardon(state), event.now_s, "restart asked for")


def _restart_later(state: State, _event: Restart) -> Result:
    return _pardon(state), ()


def _doze(state: State, event: Sleep) -> Result:
    return _leave(replace(state, asleep=True), event.now_s, NOBODY_ASKS)


def _wake_later(state: State, _event: Wake) -> Result:
    return replace(state, asleep=False), ()


def _restart_now(state: State, event: Restart) -> Result:
    return _start(_pardon(state), event)


def _leave(state: State, now: Seconds, order: str) -> Result:
    """Begin close, SIGTERM, SIGKILL."""
    steady = _steady(state, now)
    leaving = replace(_enter(state, Phase.CLOSING, now), order=order, reason=order, steady=steady)
    return leaving, (CloseLink(),)


def _steady(state: State, now: Seconds) -> bool:
    ready = state.phase is Phase.READY and now - state.since_s >= state.restart.stable_after_s
    return ready or state.steady


def _greet(state: State, event: Greeted) -> Result:
    greeted = replace(state, greeted=True)
    return _enter(greeted, Phase.LOADING, event.now_s), (LoadModel(state.model),)


def _seen(state: State, event: SignOfLife) -> Result:
    return replace(state, seen_s=event.now_s), ()


def _loaded(state: State, event: LoadDone) -> Result:
    ready = replace(_enter(state, Phase.READY, event.now_s), reason="")
    return ready, (Log("info", f"model {state.model} is ready"),)


def _load_failed(state: State, event: LoadFailed) -> Result:
    text = f"model {state.model} is set aside: {event.reason}"
    until = _later(state, event.now_s)
    if event.code == InsufficientMemory.code:  # it may be free again soon
        until = min(until, Seconds(event.now_s + MEMORY_AGAIN_S))
    kept = SetAside(event.reason, until, event.code, event.hint)
    aside = {**state.aside, state.model: kept}
    leaving, actions = _leave(replace(state, aside=aside), event.now_s, text)
    return leaving, (Log("error", text), *actions)


def _link_lost(state: State, event: LinkLost) -> Result:
    """Nobody ordered it: how it ends will say whether it crashed."""
    leaving, actions = _leave(state, event.now_s, "")
    return replace(leaving, reason=event.reason), actions


def _prove(state: State, _event: Proven) -> Result:
    if state.model == state.last_good:
        return state, ()
    return replace(state, last_good=state.model), (RememberGood(state.model),)


def _exited(state: State, event: Exited) -> Result:
    """``asleep`` only counts for a runner that we told to go."""
    if state.order or not state.wanted:
        lost = RunnerGone(state.order or "stopping", ordered=True)
        if state.wanted and state.asleep:
            resting = replace(state, model="", order="", reason="")
            return _enter(resting, Phase.ASLEEP, event.now_s), (lost,)
        if state.wanted:
            count = state.restarts + (state.order != NOBODY_ASKS)  # to be woken is no restart
            again, actions = _start(replace(state, restarts=count), event)
            return again, (lost, *actions)
        return _enter(replace(state, model=""), Phase.STOPPED, event.now_s), (lost,)
    how = event.exit
    if not state.greeted:
        return _ended_unheard(state, event)
    reason = f"runner {state.hung or how.text()}"
    outside = how.signal in (SIGKILL, SIGTERM) and not how.oom_killed and not state.hung
    calm = replace(state, failures=0) if _steady(state, event.now_s) else state
    blamed, logs = (calm, ()) if outside else _blame(calm, event.now_s, reason)
    waiting, more = _back_off(blamed, event, reason)
    gone = RunnerGone(reason, ordered=False, out_of_memory=how.oom_killed)
    return waiting, (Log("warning", reason), *logs, gone, *more)


def _ended_unheard(state: State, event: Exited) -> Result:
    """A start that failed: a missing library or a full disk must not cost a model its place."""
    reason = f"cannot start runner: {state.hung or event.exit.text()} before its Hello"
    waiting, more = _back_off(state, event, reason, least=1)
    gone = RunnerGone(reason, ordered=False, out_of_memory=event.exit.oom_killed)
    return waiting, (Log("error", reason), gone, *more)


def _blame(state: State, now: Seconds, reason: str) -> tuple[State, tuple[Action, ...]]:
    first = now - state.restart.crash_window_s
    times = (*(t for t in state.crashes.get(state.model, ()) if t > first), now)
    crashes = {**state.crashes, state.model: times}
    if len(times) < state.restart.crash_limit:
        return replace(state, crashes=crashes), ()
    why = f"{len(times)} crashes in {state.restart.crash_window_s:.0f} s, last: {reason}"
    aside = {**state.aside, state.model: SetAside(why, _later(state, now))}
    del crashes[state.model]
    text = f"model {state.model} is set aside: {why}"
    return replace(state, crashes=crashes, aside=aside), (Log("error", text),)


def _later(state: State, now: Seconds) -> Seconds:
    return Seconds(now + state.restart.crash_window_s)


def _launch_failed(state: State, event: LaunchFailed) -> Result:
    # what cannot be executed is not tried again at once
    waiting, actions = _back_off(state, event, event.reason, least=1)
    return waiting, (Log("error", event.reason), *actions)


def _back_off(state: State, event: Exited | LaunchFailed, reason: str, least: int = 0) -> Result:
    """Wait before the next start; the first restart after a steady time is immediate."""
    failures = max(state.failures, least)
    wake = Seconds(event.now_s + backoff_s(state.restart, failures))
    counted = replace(state, failures=failures + 1, restarts=state.restarts + 1)
    waiting = replace(counted, wake_s=wake, reason=reason, hung="", steady=False, model="")
    return _enter(waiting, Phase.BACKOFF, event.now_s), ()


def _wake(state: State, event: Tick) -> Result:
    return _start(state, event) if event.now_s >= state.wake_s else (state, ())


def _watch(state: State, event: Tick) -> Result:
    """A phase that lasts too long without a sign of life is a hang."""
    age = event.now_s - state.seen_s
    if age < deadline_s(state):
        return state, ()
    hung = f"hung: no sign of life for {age:.1f} s while {state.phase}"
    steady = _steady(state, event.now_s)
    killing = replace(_enter(state, Phase.KILLING, event.now_s), hung=hung, steady=steady)
    text = f"runner {hung}"
    return replace(killing, reason=text), (Log("error", text), Signal(SIGKILL))


def _escalate(state: State, event: Tick) -> Result:
    if event.now_s - state.since_s < state.runner.stop_timeout_s:
        return state, ()
    if state.phase is Phase.CLOSING:
        return _enter(state, Phase.TERMINATING, event.now_s), (Signal(SIGTERM),)
    stuck = state.phase is Phase.KILLING  # uninterruptible sleep: ask again and say so
    text = "runner does not end after SIGKILL: is it blocked in the kernel?"
    logs: tuple[Action, ...] = (Log("error", text),) if stuck else ()
    return _enter(state, Phase.KILLING, event.now_s), (Signal(SIGKILL), *logs)


Handler = Callable[[State, Any], Result]
Row = dict[type, tuple[Handler, frozenset[Phase]]]


def _to(*phases: Phase) -> frozenset[Phase]:
    return frozenset(phases)


_P = Phase
_BEGUN = _to(_P.SPAWNING, _P.NO_MODEL)
_ENDED = _BEGUN | _to(_P.STOPPED, _P.BACKOFF, _P.ASLEEP)
_ALIVE: Row = {
    Stop: (_dismiss, _to(_P.CLOSING)),
    Restart: (_replace_runner, _to(_P.CLOSING)),
    LinkLost: (_link_lost, _to(_P.CLOSING)),
    Exited: (_exited, _to(_P.BACKOFF)),  # nobody ordered it
}


def _going(phase: Phase, escalated: Phase) -> Row:
    return {
        Restart: (_restart_later, _to(phase)),
        Wake: (_wake_later, _to(phase)),
        Stop: (_give_up_on, _to(phase)),
        Exited: (_exited, _ENDED),
        Tick: (_escalate, _to(phase, escalated)),
    }


_IDLE: Row = {Stop: (_rest, _to(_P.STOPPED)), Restart: (_restart_now, _BEGUN)}
TABLE: Final[dict[Phase, Row]] = {
    _P.STOPPED: {Start: (_start, _BEGUN), Restart: (_restart_now, _BEGUN)},
    _P.BACKOFF: {**_IDLE, Tick: (_wake, _BEGUN | _to(_P.BACKOFF))},
    _P.NO_MODEL: {**_IDLE, Tick: (_wake, _BEGUN)},
    _P.ASLEEP: {**_IDLE, Wake: (_start, _BEGUN)},
    _P.SPAWNING: {**_ALIVE, Greeted: (_greet, _to(_P.LOADING)),
                  LaunchFailed: (_launch_failed, _to(_P.BACKOFF)),
                  Tick: (_watch, _to(_P.SPAWNING, _P.KILLING))},
    _P.LOADING: {**_ALIVE, SignOfLife: (_seen, _to(_P.LOADING)),
                 LoadDone: (_loaded, _to(_P.READY)),
                 LoadFailed: (_load_failed, _to(_P.CLOSING)),
                 Tick: (_watch, _to(_P.LOADING, _P.KILLING))},
    _P.READY: {**_ALIVE, SignOfLife: (_seen, _to(_P.READY)), Proven: (_prove, _to(_P.READY)),
               Sleep: (_doze, _to(_P.CLOSING)),
               Tick: (_watch, _to(_P.READY, _P.KILLING))},
    _P.CLOSING: _going(_P.CLOSING, _P.TERMINATING),
    _P.TERMINATING: _going(_P.TERMINATING, _P.KILLING),
    _P.KILLING: _going(_P.KILLING, _P.KILLING),
}  # fmt: skip
