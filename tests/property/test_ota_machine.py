"""The update machine's table under any sequence of events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker_ota.core import journal as journal_core
from stoker_ota.core.machine import REPEATS, TABLE, step
from stoker_ota.values.deployment import (
    MAX_ATTEMPTS,
    MAX_DELTA_FAILURES,
    MAX_MOVES,
    Journal,
    Offer,
    Phase,
)
from stoker_ota.values.moves import Do, Event, What

OFFER = Offer("chat", 2, "ab" * 32)
OFFERS = st.builds(
    Offer,
    st.just("chat"),
    st.integers(1, 9),
    st.sampled_from(["ab" * 32, "cd" * 32]),
    allow_full=st.booleans(),
    confirm=st.booleans(),
    forced=st.booleans(),
)
EVENTS = st.builds(
    Event,
    st.sampled_from(What),
    st.none() | OFFERS,
    generation=st.integers(0, 3),
    previous=st.integers(0, 2),
    code=st.sampled_from(["", "chunk-hash"]),
)
ACTIVE = (Phase.ACTIVATING, Phase.TESTING, Phase.COMMITTED, Phase.ROLLING_BACK)


def _run(*events: Event, journal: Journal | None = None) -> tuple[Journal, list[Do]]:
    state, done = journal or Journal(), list[Do]()
    for event in events:
        state, todo = step(state, event)
        done += todo
    return state, done


def _happy() -> list[Event]:
    return [
        Event(What.OFFERED, OFFER),
        Event(What.ALLOWED),
        *[Event(What.DONE)] * 3,
        Event(What.DONE, generation=5, previous=4),
        Event(What.ALLOWED),
        Event(What.DONE),
        Event(What.HEALTHY),
        Event(What.DONE),
    ]


def test_an_update_goes_its_way_from_offer_to_commit() -> None:
    state, done = _run(*_happy())
    assert state == Journal(previous=4)
    assert done == [
        Do.EVALUATE, Do.PREFLIGHT, Do.FETCH, Do.APPLY, Do.VERIFY, Do.EVALUATE, Do.ACTIVATE,
        Do.TEST, Do.COMMIT, Do.CLEAN, Do.REPORT,
    ]  # fmt: skip


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_says_what_a_restart_in_it_does(phase: Phase) -> None:
    assert (phase, What.RESTARTED) in TABLE
    state, todo = step(Journal(phase, OFFER, generation=5), Event(What.RESTARTED, generation=5))
    assert todo or phase is Phase.WAIT_SPACE
    assert state.offer == OFFER


@pytest.mark.parametrize("phase", [p for p in Phase if p not in (Phase.IDLE, Phase.WAIT_SPACE)])
def test_every_working_phase_has_a_row_for_success_and_for_failure(phase: Phase) -> None:
    kinds = {what for found, what in TABLE if found is phase}
    assert kinds & {What.DONE, What.HEALTHY, What.ALLOWED}
    assert phase is Phase.FAILED or kinds & {What.ERROR, What.UNHEALTHY, What.RETRY}


@given(st.lists(EVENTS, max_size=60))
def test_a_set_is_activated_only_when_it_is_staged_and_left_only_by_commit_or_return(
    events: list[Event],
) -> None:
    state = Journal()
    for event in events:
        after, todo = step(state, event)
        if Do.ACTIVATE in todo:
            assert state.phase is Phase.STAGED
        if state.phase in ACTIVE and after.phase not in ACTIVE and after.phase is not Phase.STAGED:
            assert event.what is What.DONE  # of a commit or of a return
        if after.phase is Phase.COMMITTED and state.phase is not Phase.COMMITTED:
            assert state.phase is Phase.TESTING
        assert after.attempts <= MAX_ATTEMPTS
        assert after.delta_failures <= MAX_DELTA_FAILURES + 1
        state = after


@given(st.lists(EVENTS, min_size=1, max_size=40))
def test_the_journal_comes_back_from_its_bytes_after_any_events(events: list[Event]) -> None:
    state, _ = _run(*events)
    assert journal_core.decode(journal_core.encode(state)) == state


@given(st.lists(st.sampled_from(What), max_size=300))
def test_one_deployment_cannot_go_round_for_ever(kinds: list[What]) -> None:
    state, _ = _run(Event(What.OFFERED, OFFER))
    for what in kinds:
        if what is What.OFFERED:
            continue
        state, _ = step(state, Event(what, generation=1))
        assert state.moves <= MAX_MOVES + 8


def test_whatever_goes_in_circles_is_ended() -> None:
    state, _ = _run(Event(What.OFFERED, OFFER))
    for _ in range(MAX_MOVES):
        state, _ = step(state, Event(What.ALLOWED))
        state, _ = step(state, Event(What.NO_SPACE))
        state, _ = step(state, Event(What.SPACE_FREED))
    assert state.phase is Phase.FAILED


def test_a_manifest_that_failed_is_not_tried_again_unless_forced() -> None:
    failed, _ = _run(
        Event(What.OFFERED, OFFER), Event(What.ERROR, code="wrong-target"), Event(What.DONE)
    )
    assert failed.phase is Phase.IDLE
    assert failed.failed == (OFFER.manifest,)
    state, todo = step(failed, Event(What.OFFERED, OFFER))
    assert (state.phase, todo) == (Phase.IDLE, (Do.REFUSE,))
    forced = Offer("chat", 2, OFFER.manifest, forced=True)
    assert step(failed, Event(What.OFFERED, forced))[0].phase is Phase.OFFERED


def _applying(**values: object) -> Journal:
    return Journal(Phase.APPLYING, Offer("chat", 2, "ab" * 32, **values))  # type: ignore[arg-type]


def test_a_delta_that_is_broken_twice_gives_way_to_the_whole_artifact_if_allowed() -> None:
    once, todo = step(_applying(), Event(What.BROKEN, code="chunk-hash"))
    assert (once.phase, once.whole, todo) == (Phase.FETCHING, False, (Do.CLEAN, Do.FETCH))
    twice, _ = _run(Event(What.DONE), Event(What.BROKEN), journal=once)
    assert (twice.phase, twice.whole) == (Phase.FETCHING, True)
    thrice, _ = _run(Event(What.DONE), Event(What.BROKEN), journal=twice)
    assert thrice.phase is Phase.FAILED


def test_without_leave_a_broken_delta_never_becomes_a_whole_download() -> None:
    state, _ = _run(
        Event(What.BROKEN), Event(What.DONE), Event(What.BROKEN),
        journal=_applying(allow_full=False),
    )  # fmt: skip
    assert (state.phase, state.whole) == (Phase.FAILED, False)


def test_a_full_disk_waits_for_room_and_does_not_retry_in_a_loop() -> None:
    state, todo = step(_applying(), Event(What.NO_SPACE))
    assert (state.phase, todo) == (Phase.WAIT_SPACE, (Do.CLEAN, Do.REPORT))
    assert step(state, Event(What.RETRY)) == (state, ())
    assert step(state, Event(What.SPACE_FREED))[0].phase is Phase.PREFLIGHT


def test_a_power_cut_around_the_activating_rename_is_told_by_the_link() -> None:
    cut = Journal(Phase.ACTIVATING, OFFER, generation=5, attempts=1)
    assert step(cut, Event(What.RESTARTED, generation=5))[0].phase is Phase.TESTING
    assert step(cut, Event(What.RESTARTED, generation=4))[0].phase is Phase.STAGED


def test_a_set_that_stops_the_device_while_it_is_tested_is_left_after_two_attempts() -> None:
    state = Journal(Phase.TESTING, OFFER, generation=5, previous=4, attempts=1)
    state, todo = step(state, Event(What.RESTARTED, generation=5))
    assert (state.phase, todo) == (Phase.TESTING, (Do.TEST,))
    state, todo = step(state, Event(What.RESTARTED, generation=5))
    assert (state.phase, todo) == (Phase.ROLLING_BACK, (Do.ROLL_BACK,))


def test_a_set_to_be_confirmed_waits_for_it_and_also_over_a_restart() -> None:
    asked = Journal(Phase.TESTING, Offer("chat", 2, "ab" * 32, confirm=True), generation=5)
    assert step(asked, Event(What.CONFIRMED)) == (asked, ())
    healthy, _ = step(asked, Event(What.HEALTHY))
    assert healthy.phase is Phase.TESTING
    healthy, _ = step(healthy, Event(What.RESTARTED, generation=5))
    assert step(healthy, Event(What.CONFIRMED))[0].phase is Phase.COMMITTED


def test_returning_is_repeated_until_it_is_done_and_never_given_up() -> None:
    state = Journal(Phase.ROLLING_BACK, OFFER, generation=5, previous=4, moves=MAX_MOVES)
    for what in (What.ERROR, What.NO_SPACE, What.RETRY, What.CANCELLED, What.RESTARTED):
        state, _ = step(state, Event(what))
        assert state.phase is Phase.ROLLING_BACK
    assert step(state, Event(What.DONE))[0].phase is Phase.FAILED


def test_waiting_leads_back_to_the_phase_s_own_action() -> None:
    for phase, todo in REPEATS.items():
        again = step(Journal(phase, OFFER, generation=1), Event(What.RESTARTED, generation=1))[1]
        assert again == (todo,)
