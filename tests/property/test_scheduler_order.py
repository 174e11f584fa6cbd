"""The scheduler never loses, doubles or overtakes a job, whatever happens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.core import scheduler
from stoker.core.scheduler import (
    Accept,
    Action,
    Dispatch,
    Ended,
    Event,
    Hold,
    Lost,
    Refuse,
    Revoke,
    RunnerLost,
    RunnerReady,
    State,
    Streamed,
    Submit,
    Withdraw,
)  # fmt: skip
from stoker.units import Seconds

JOBS = [f"j{n}" for n in range(12)]
events = st.lists(
    st.one_of(
        st.sampled_from([RunnerReady(), RunnerLost(ordered=False), RunnerLost(ordered=True)]),
        st.builds(Submit, st.sampled_from(JOBS)),
        st.builds(Streamed, st.sampled_from(JOBS)),
        st.builds(Ended, st.sampled_from(JOBS), st.just(Seconds(1.0))),
        st.builds(Withdraw, st.sampled_from(JOBS)),
        st.builds(Hold, st.booleans()),
    ),
    max_size=120,
)


@given(events=events, slots=st.integers(1, 4), limit=st.integers(1, 6))
def test_every_job_is_in_one_place_and_within_bounds(
    events: list[Event], slots: int, limit: int
) -> None:
    state = State(slots, limit)
    known: set[str] = set()
    for event in events:
        before = state.running
        state, actions = scheduler.step(state, event)
        known = track(known, event, actions, before)
        places = [*state.queue, *state.running]
        assert len(places) == len(set(places))
        assert set(places) == known
        assert len(state.running) <= slots
        assert len(state.queue) <= limit + slots  # requeued jobs may stand before the limit
        assert state.streamed <= set(state.running)
        assert set(state.losses) <= set(places)
        idle = len(state.running) < slots
        assert not (state.open and not state.held and state.queue and idle)


def track(
    known: set[str], event: Event, actions: tuple[Action, ...], running_before: tuple[str, ...]
) -> set[str]:
    for action in actions:
        if isinstance(action, Accept):
            known = known | {action.job}
        if isinstance(action, Lost):
            known = known - {action.job}
    if isinstance(event, Withdraw):
        return known - {event.job}
    if isinstance(event, Ended) and event.job in running_before:
        return known - {event.job}
    return known


def test_jobs_run_in_order_of_arrival() -> None:
    state, _ = scheduler.step(State(1, 9), RunnerReady())
    ran: list[str] = []
    for job in ("a", "b", "c"):
        state, actions = scheduler.step(state, Submit(job))
        ran += [a.job for a in actions if isinstance(a, Dispatch)]
    for _ in range(3):
        state, actions = scheduler.step(state, Ended(state.running[0], Seconds(1)))
        ran += [a.job for a in actions if isinstance(a, Dispatch)]
    assert ran == ["a", "b", "c"]


def test_a_full_queue_refuses_with_a_time_to_come_back() -> None:
    state = State(1, 1)
    state, _ = scheduler.step(state, Submit("a"))
    state, actions = scheduler.step(state, Submit("b"))
    assert actions == (Refuse("b", Seconds(5.0)),)
    assert state.queue == ("a",)


def running(*jobs: str) -> State:
    state, _ = scheduler.step(State(4, 9), RunnerReady())
    for job in jobs:
        state, _ = scheduler.step(state, Submit(job))
    return state


def test_a_crash_repeats_what_nobody_saw_and_ends_what_was_streamed() -> None:
    state, _ = scheduler.step(running("seen", "unseen"), Streamed("seen"))
    state, actions = scheduler.step(state, RunnerLost(ordered=False))
    assert actions == (Lost("seen", ordered=False, poison=False),)
    assert state.queue == ("unseen",)
    state, actions = scheduler.step(state, RunnerReady())
    assert actions == (Dispatch("unseen"),)


def test_a_job_that_lost_two_runners_is_not_tried_a_third_time() -> None:
    state, _ = scheduler.step(running("bad"), RunnerLost(ordered=False))
    state, _ = scheduler.step(state, RunnerReady())
    state, actions = scheduler.step(state, RunnerLost(ordered=False))
    assert actions == (Lost("bad", ordered=False, poison=True),)


def test_runners_that_we_replace_ourselves_count_against_no_job() -> None:
    state = running("a")
    for _ in range(5):
        state, actions = scheduler.step(state, RunnerLost(ordered=True))
        assert actions == ()
        state, actions = scheduler.step(state, RunnerReady())
        assert actions == (Dispatch("a"),)


def test_repeated_jobs_stand_before_those_that_came_later() -> None:
    state = running("a", "b", "c", "d")
    state, _ = scheduler.step(state, Submit("late"))
    state, _ = scheduler.step(state, RunnerLost(ordered=False))
    assert state.queue == ("a", "b", "c", "d", "late")


def test_withdrawing_a_running_job_revokes_it_and_frees_its_slot() -> None:
    state, _ = scheduler.step(State(1, 9), RunnerReady())
    for job in ("a", "b"):
        state, _ = scheduler.step(state, Submit(job))
    state, actions = scheduler.step(state, Withdraw("a"))
    assert actions == (Revoke("a"), Dispatch("b"))
