"""Whatever happens in whatever order, the supervisor stays within its table."""

from __future__ import annotations

from signal import SIGABRT, SIGKILL

from hypothesis import given
from hypothesis import strategies as st

from stoker.config.schema import RestartConfig, RunnerConfig
from stoker.core import supervisor
from stoker.core.runner_life import (
    CloseLink,
    Event,
    Exited,
    Greeted,
    LaunchFailed,
    LinkLost,
    LoadDone,
    LoadFailed,
    LoadModel,
    Phase,
    Proven,
    Restart,
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
from stoker.events.inference import RunnerExit
from stoker.units import Seconds

EXITS = [RunnerExit(status=0), RunnerExit(signal=SIGKILL), RunnerExit(signal=SIGABRT)]
HAS_PROCESS = {
    Phase.SPAWNING, Phase.LOADING, Phase.READY, Phase.CLOSING, Phase.TERMINATING, Phase.KILLING,
}  # fmt: skip


def make(kind: int, now: float, pick: int) -> Event:
    moment = Seconds(now)
    simple: list[type] = [
        Start, Stop, Restart, Greeted, SignOfLife, LoadDone, Tick, Proven, Sleep, Wake,
    ]  # fmt: skip
    if kind < len(simple):
        event: Event = simple[kind](moment)
        return event
    worded: list[type] = [LoadFailed, LinkLost, LaunchFailed]
    if kind < len(simple) + len(worded):
        failed: Event = worded[kind - len(simple)](moment, "reason")
        return failed
    return Exited(moment, EXITS[pick % len(EXITS)])


steps = st.lists(
    st.tuples(st.integers(0, 13), st.floats(0, 40, allow_nan=False), st.integers(0, 2)),
    max_size=80,
)


@given(steps=steps, models=st.lists(st.sampled_from("abc"), unique=True))
def test_one_process_at_a_time_and_only_while_one_exists(
    steps: list[tuple[int, float, int]], models: list[str]
) -> None:
    state = State(RunnerConfig(), RestartConfig(), tuple(models))
    now, alive = 0.0, False
    for kind, gap, pick in steps:
        now += gap
        event = make(kind, now, pick)
        if isinstance(event, Exited | LaunchFailed) and not alive:
            continue
        before = state
        state, actions = supervisor.step(state, event)
        if isinstance(event, Exited) or (
            isinstance(event, LaunchFailed) and before.phase is Phase.SPAWNING
        ):
            alive = False
        for action in actions:
            if isinstance(action, Spawn):
                assert not alive
                alive = True
            elif isinstance(action, LoadModel | CloseLink | Signal):
                assert alive
        assert alive == (state.phase in HAS_PROCESS)
        assert state.phase is not Phase.ASLEEP or (state.wanted and state.asleep)
        assert supervisor.next_wake_s(state) >= 0
        assert state.wanted or state.phase in HAS_PROCESS | {Phase.STOPPED}


@given(steps=steps)
def test_with_a_healthy_runner_and_time_it_always_becomes_ready(
    steps: list[tuple[int, float, int]],
) -> None:
    state = State(RunnerConfig(), RestartConfig(), ("a", "b"))
    now = 0.0
    for kind, gap, pick in steps:
        now += gap
        state, _ = supervisor.step(state, make(kind, now, pick))
    state, _ = supervisor.step(state, Restart(Seconds(now)))
    for _ in range(40):
        now = max(now, min(supervisor.next_wake_s(state), now + 700)) + 0.001
        if state.phase is Phase.READY:
            break
        reply: dict[Phase, Event] = {
            Phase.SPAWNING: Greeted(Seconds(now)),
            Phase.LOADING: LoadDone(Seconds(now)),
            Phase.CLOSING: Exited(Seconds(now), EXITS[0]),
            Phase.TERMINATING: Exited(Seconds(now), EXITS[0]),
            Phase.KILLING: Exited(Seconds(now), EXITS[1]),
        }
        state, _ = supervisor.step(state, reply.get(state.phase, Tick(Seconds(now))))
    assert state.phase is Phase.READY


@given(failures=st.integers(0, 10_000), first=st.floats(0.01, 10), cap=st.floats(0.01, 1000))
def test_backoff_never_leaves_its_bounds(failures: int, first: float, cap: float) -> None:
    config = RestartConfig(backoff_first_s=Seconds(first), backoff_cap_s=Seconds(cap))
    assert 0 <= supervisor.backoff_s(config, failures) <= cap
    assert supervisor.backoff_s(config, failures) <= supervisor.backoff_s(config, failures + 1)
