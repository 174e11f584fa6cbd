"""The scheduler never loses, doubles or overtakes a job, whatever happens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.core import scheduler
from stoker.core.scheduler import (
    Accept,
    Action,
    Dispatch,
    Drain,
    Ended,
    Event,
    Hold,
    Lost,
    Refuse,
    Revoke,
    Rules,
    RunnerLost,
    RunnerReady,
    State,
    Streamed,
    Submit,
    Withdraw,
)  # fmt: skip
from stoker.units import Seconds

NOW = Seconds(100.0)


def step(state: State, event: Event) -> tuple[State, tuple[Action, ...]]:
    """At one and the same moment."""
    return scheduler.step(state, event, NOW)


def empty(slots: int, queue_limit: int) -> State:
    return State(Rules(slots, queue_limit))


JOBS = [f"j{n}" for n in range(12)]
events = st.lists(
    st.one_of(
        st.sampled_from([RunnerReady(), RunnerLost(ordered=False), RunnerLost(ordered=True)]),
        st.builds(Submit, st.sampled_from(JOBS), model=st.sampled_from(["", "a", "b"])),
        st.builds(RunnerReady, st.sampled_from(["a", "b"])),
        st.builds(Drain, st.booleans()),
        st.builds(Streamed, st.sampled_from(JOBS)),
        st.builds(Ended, st.sampled_from(JOBS)),
        st.builds(Withdraw, st.sampled_from(JOBS)),
        st.builds(Hold, st.booleans()),
    ),
    max_size=120,
)


@given(events=events, slots=st.integers(1, 4), limit=st.integers(1, 6))
def test_every_job_is_in_one_place_and_within_bounds(
    events: list[Event], slots: int, limit: int
) -> None:
    state = empty(slots, limit)
    known: set[str] = set()
    for event in events:
        before = state.running
        state, actions = step(state, event)
        known = track(known, event, actions, before)
        places = [*state.queue, *state.running]
        assert len(places) == len(set(places))
        assert set(places) == known
        assert len(state.running) <= slots
        assert len(state.queue) <= limit + slots  # requeued jobs may stand before the limit
        assert len(state.decoding) <= state.width
        assert all(state.jobs[job].streamed is False for job in state.queue)
        idle = len(state.running) < slots
        ready = [job for job in state.queue if not state.barred(state.jobs[job])]
        assert not (state.open and not state.held and ready and idle)
        for action in actions:
            if isinstance(action, Dispatch):
                assert not state.draining
                assert state.fits(state.jobs[action.job])


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
    state, _ = step(empty(1, 9), RunnerReady())
    ran: list[str] = []
    for job in ("a", "b", "c"):
        state, actions = step(state, Submit(job))
        ran += [a.job for a in actions if isinstance(a, Dispatch)]
    for _ in range(3):
        state, actions = step(state, Ended(state.running[0]))
        ran += [a.job for a in actions if isinstance(a, Dispatch)]
    assert ran == ["a", "b", "c"]


def test_a_full_queue_refuses_with_a_time_to_come_back() -> None:
    state = empty(1, 1)
    state, _ = step(state, Submit("a"))
    state, actions = step(state, Submit("b"))
    assert actions == (Refuse("b", "queue", Seconds(5.0)),)
    assert state.queue == ("a",)


def running(*jobs: str) -> State:
    state, _ = step(empty(4, 9), RunnerReady())
    for job in jobs:
        state, _ = step(state, Submit(job))
    return state


def test_a_crash_repeats_what_nobody_saw_and_ends_what_was_streamed() -> None:
    state, _ = step(running("seen", "unseen"), Streamed("seen"))
    state, actions = step(state, RunnerLost(ordered=False))
    assert actions == (Lost("seen", ordered=False, poison=False),)
    assert state.queue == ("unseen",)
    state, actions = step(state, RunnerReady())
    assert actions == (Dispatch("unseen"),)


def test_a_job_that_lost_two_runners_is_not_tried_a_third_time() -> None:
    state, _ = step(running("bad"), RunnerLost(ordered=False))
    state, _ = step(state, RunnerReady())
    state, actions = step(state, RunnerLost(ordered=False))
    assert actions == (Lost("bad", ordered=False, poison=True),)


def test_runners_that_we_replace_ourselves_count_against_no_job() -> None:
    state = running("a")
    for _ in range(5):
        state, actions = step(state, RunnerLost(ordered=True))
        assert actions == ()
        state, actions = step(state, RunnerReady())
        assert actions == (Dispatch("a"),)


def test_repeated_jobs_stand_before_those_that_came_later() -> None:
    state = running("a", "b", "c", "d")
    state, _ = step(state, Submit("late"))
    state, _ = step(state, RunnerLost(ordered=False))
    assert state.queue == ("a", "b", "c", "d", "late")


def test_withdrawing_a_running_job_revokes_it_and_frees_its_slot() -> None:
    state, _ = step(empty(1, 9), RunnerReady())
    for job in ("a", "b"):
        state, _ = step(state, Submit(job))
    state, actions = step(state, Withdraw("a"))
    assert actions == (Revoke("a"), Dispatch("b"))
