"""The supervisor's decisions, one behaviour a test."""

from __future__ import annotations

from dataclasses import replace
from signal import SIGABRT, SIGKILL, SIGTERM

import pytest

from stoker.config.schema import RestartConfig, RunnerConfig
from stoker.core import supervisor
from stoker.core.runner_life import (
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
    Spawn,
    Start,
    State,
    Stop,
    Tick,
)  # fmt: skip
from stoker.events.inference import RunnerExit
from stoker.units import Seconds

CRASH = RunnerExit(signal=SIGABRT)
KILLED = RunnerExit(signal=SIGKILL)


def fresh(*models: str, last_good: str = "") -> State:
    return State(RunnerConfig(), RestartConfig(), models, last_good=last_good)


def run(state: State, *events: Event) -> tuple[State, list[Action]]:
    actions: list[Action] = []
    for event in events:
        state, more = supervisor.step(state, event)
        actions += [action for action in more if not isinstance(action, Log)]
    return state, actions


def at(seconds: float) -> Seconds:
    return Seconds(seconds)


def ready(*models: str, last_good: str = "") -> State:
    state, _ = run(
        fresh(*models, last_good=last_good), Start(at(0)), Greeted(at(1)), LoadDone(at(2))
    )
    assert state.phase is Phase.READY
    return state


def crash_again(state: State, now: float, how: RunnerExit = CRASH) -> State:
    """From BACKOFF: start, load, crash."""
    wake = max(now, state.wake_s)
    state, _ = run(state, Tick(at(wake)), Greeted(at(wake)), LoadDone(at(wake)))
    return run(state, Exited(at(wake), how))[0]


def test_start_spawns_greets_loads_and_is_ready() -> None:
    state, actions = run(fresh("a"), Start(at(0)), Greeted(at(1)), LoadDone(at(2)))
    assert actions == [Spawn(), LoadModel("a")]
    assert (state.phase, state.model, state.reason) == (Phase.READY, "a", "")


def test_without_a_model_nothing_is_spawned_and_the_reason_is_told() -> None:
    state, actions = run(fresh(), Start(at(0)), Tick(at(1e9)))
    assert actions == []
    assert state.phase is Phase.NO_MODEL
    assert state.reason == "no model is configured"


def test_first_restart_is_immediate_and_later_ones_wait_longer_up_to_the_cap() -> None:
    config = RestartConfig(backoff_first_s=at(0.1), backoff_cap_s=at(1))
    waits = [supervisor.backoff_s(config, n) for n in range(8)]
    assert waits == pytest.approx([0, 0.1, 0.2, 0.4, 0.8, 1, 1, 1])


def test_kill_from_outside_restarts_at_once_and_does_not_blame_the_model() -> None:
    state, actions = run(ready("a"), Exited(at(3), KILLED))
    assert actions == [RunnerGone("runner killed by signal 9", ordered=False)]
    assert supervisor.next_wake_s(state) == 3.0
    for _ in range(10):
        state = crash_again(state, 3, KILLED)
    assert state.aside == {}
    assert state.restarts == 11


def test_a_model_that_crashes_three_times_is_set_aside_and_the_last_good_is_used() -> None:
    state, _ = run(ready("new", "old", "other", last_good="old"), Exited(at(3), CRASH))
    for _ in range(2):
        state = crash_again(state, 4)
    assert "3 crashes" in state.aside["new"].reason
    state, actions = run(state, Tick(state.wake_s), Greeted(state.wake_s))
    assert actions == [Spawn(), LoadModel("old")]


def test_out_of_memory_blames_the_model() -> None:
    state, _ = run(ready("big", "small"), Exited(at(3), replace(KILLED, oom_killed=True)))
    for _ in range(2):
        state = crash_again(state, 4, replace(KILLED, oom_killed=True))
    assert "out of memory" in state.aside["big"].reason


def test_crashes_outside_the_window_are_forgotten() -> None:
    state, _ = run(ready("a", "b"), Exited(at(3), CRASH))
    for moment in (700, 1400, 2100):
        state = crash_again(state, moment)
    assert state.aside == {}


def test_a_sole_model_set_aside_is_tried_again_after_the_window() -> None:
    state, _ = run(ready("a"), Exited(at(3), CRASH))
    for _ in range(2):
        state = crash_again(state, 4)
    state, _ = run(state, Tick(state.wake_s))
    assert state.phase is Phase.NO_MODEL
    assert state.reason.startswith("model a is set aside: 3 crashes")
    state, actions = run(state, Tick(state.wake_s))
    assert actions == [Spawn()]


def test_a_model_that_cannot_be_loaded_is_set_aside_at_once() -> None:
    state, actions = run(
        fresh("bad", "good"), Start(at(0)), Greeted(at(1)), LoadFailed(at(2), "truncated file")
    )
    assert actions[-1] == CloseLink()
    state, actions = run(state, Exited(at(3), RunnerExit(status=0)), Greeted(at(4)))
    assert Spawn() in actions
    assert actions[-1] == LoadModel("good")
    assert state.aside["bad"].reason == "truncated file"


@pytest.mark.parametrize(
    ("events", "limit"),
    [
        ((Start(at(0)),), RunnerConfig().hello_timeout_s),
        ((Start(at(0)), Greeted(at(0))), RunnerConfig().load_stall_timeout_s),
        ((Start(at(0)), Greeted(at(0)), LoadDone(at(0))), RunnerConfig().heartbeat_timeout_s),
    ],
)
def test_a_hang_is_killed_when_its_deadline_passes(
    events: tuple[Event, ...], limit: Seconds
) -> None:
    state, _ = run(fresh("a"), *events)
    assert supervisor.next_wake_s(state) == limit
    state, actions = run(state, Tick(at(limit - 0.1)))
    assert actions == []
    state, actions = run(state, Tick(limit))
    assert actions == [Signal(SIGKILL)]
    state, actions = run(state, Exited(at(limit + 1), KILLED))
    assert isinstance(actions[0], RunnerGone)
    assert "hung" in actions[0].reason
    # our own SIGKILL does not excuse it; before Hello there was no model to blame
    assert state.crashes == ({"a": (limit + 1,)} if len(events) > 1 else {})


def test_signs_of_life_keep_a_slow_load_alive() -> None:
    state, _ = run(fresh("a"), Start(at(0)), Greeted(at(0)))
    for moment in range(0, 600, 30):
        state, actions = run(state, SignOfLife(at(moment)), Tick(at(moment + 29)))
        assert actions == []


def test_stop_closes_then_terminates_then_kills() -> None:
    state, actions = run(ready("a"), Stop(at(10)), Tick(at(12)), Tick(at(15)), Tick(at(20)))
    assert actions == [CloseLink(), Signal(SIGTERM), Signal(SIGKILL)]
    state, actions = run(state, Exited(at(21), KILLED))
    assert state.phase is Phase.STOPPED
    assert actions == [RunnerGone("stopping", ordered=True)]


def test_stop_while_a_hung_runner_is_killed_does_not_bring_it_back() -> None:
    state, _ = run(ready("a"), Tick(at(100)), Stop(at(100)), Exited(at(101), KILLED))
    assert state.phase is Phase.STOPPED


def test_a_runner_that_ignores_sigkill_is_asked_again_and_reported() -> None:
    state, _ = run(ready("a"), Stop(at(0)), Tick(at(5)), Tick(at(10)))
    state, actions = supervisor.step(state, Tick(at(15)))
    assert Signal(SIGKILL) in actions
    assert any(isinstance(a, Log) and a.level == "error" for a in actions)


def test_restart_replaces_the_runner_and_pardons_models_set_aside() -> None:
    state = replace(ready("b", "a"), aside={"a": SetAside("crashed", at(999))})
    state, actions = run(state, Restart(at(5)), Exited(at(6), RunnerExit(status=0)))
    assert actions == [CloseLink(), RunnerGone("restart asked for", ordered=True), Spawn()]
    assert state.aside == {}


def test_a_lost_link_waits_for_the_exit_and_counts_as_a_crash() -> None:
    state, actions = run(ready("a"), LinkLost(at(3), "bad frame"), Exited(at(4), CRASH))
    assert actions[0] == CloseLink()
    assert state.phase is Phase.BACKOFF
    assert state.crashes["a"] == (4.0,)


@pytest.mark.parametrize("how", [RunnerExit(status=203), CRASH, RunnerExit(status=69)])
@pytest.mark.parametrize("link", [(), (LinkLost(at(0), "runner closed its connection"),)])
def test_a_runner_that_ends_before_its_hello_waits_and_blames_nobody(
    how: RunnerExit, link: tuple[Event, ...]
) -> None:
    state, _ = run(fresh("a", "b"), Start(at(0)), *link)
    for count in range(10):
        now = state.since_s
        state, actions = run(state, Exited(now, how))
        assert isinstance(actions[0], RunnerGone)
        assert state.reason == f"cannot start runner: {how.text()} before its Hello"
        assert state.wake_s > now, f"start {count} was tried again at once"
        state, _ = run(state, Tick(state.wake_s), *(replace(e, now_s=state.wake_s) for e in link))
        assert state.model == "a"
    assert (state.aside, state.crashes) == ({}, {})


def test_a_hello_of_the_last_runner_does_not_count_for_the_next() -> None:
    state, _ = run(ready("a"), Exited(at(3), KILLED), Tick(at(3)), Exited(at(4), CRASH))
    assert state.crashes == {}


def test_a_kill_for_want_of_memory_is_told_to_those_who_waited() -> None:
    oom = replace(KILLED, oom_killed=True)
    _, actions = run(ready("a"), Exited(at(3), oom))
    assert actions == [RunnerGone(f"runner {oom.text()}", ordered=False, out_of_memory=True)]


def test_a_launch_that_fails_backs_off() -> None:
    state, _ = run(fresh("a"), Start(at(0)), LaunchFailed(at(0), "cannot start runner: ENOENT"))
    assert state.phase is Phase.BACKOFF
    assert state.wake_s > 0


def test_a_steady_runner_starts_its_backoff_anew() -> None:
    state, _ = run(ready("a"), Exited(at(3), KILLED))
    state = crash_again(state, 3, KILLED)
    assert state.wake_s > 3
    state, _ = run(state, Tick(state.wake_s), Greeted(at(4)), LoadDone(at(4)))
    state, _ = run(state, Exited(at(4 + 61), KILLED))
    assert state.wake_s == 65.0


def test_the_last_good_model_is_the_one_that_finished_a_job() -> None:
    state, actions = run(ready("a"), Proven(at(3)), Proven(at(4)))
    assert actions == [RememberGood("a")]
    assert state.last_good == "a"


def test_late_events_change_nothing() -> None:
    state = ready("a")
    for event in (Greeted(at(9)), LoadDone(at(9)), LoadFailed(at(9), "x"), Start(at(9))):
        assert supervisor.step(state, event) == (state, ())
