"""Slots have an owner: what the runner holds for nobody is taken back, what it lost ends."""

from __future__ import annotations

import pytest
from tests.unit.services.inference_rig import ALICE, Rig

from stoker.events.runner import Answer, Beat, Cancel, Stats


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.start()
    return made


def beat(rig: Rig, active: int, times: int = 3) -> None:
    for _ in range(times):
        rig.runner.say(Beat(0, 0, active, 0))
        rig.turn()


def answer(rig: Rig, *jobs: str) -> None:
    asked = rig.runner.of_kind(Stats)[-1]
    assert isinstance(asked, Stats)
    rig.runner.say(Answer(asked.id, {"jobs": list(jobs)}))
    rig.turn()


def test_a_caller_that_vanishes_frees_its_slot_in_the_runner(rig: Rig) -> None:
    asked = rig.ask()
    rig.service.caller_vanished(ALICE.unique_name)
    rig.turn()
    assert rig.runner.of_kind(Cancel) == [Cancel(asked.id)]


def test_a_slot_that_the_runner_did_not_free_is_taken_back(rig: Rig) -> None:
    asked = rig.ask()
    rig.service.caller_vanished(ALICE.unique_name)
    rig.turn()
    beat(rig, active=1)
    answer(rig, asked.id)
    assert rig.runner.of_kind(Cancel) == [Cancel(asked.id), Cancel(asked.id)]


def test_a_job_that_the_runner_lost_ends_long_before_its_deadline(rig: Rig) -> None:
    asked = rig.ask()
    beat(rig, active=0)
    answer(rig)
    assert asked.records()[-1]["error"]["code"] == "engine-failed"
    assert rig.loop.desk.running() == 0


def test_what_changes_while_the_question_travels_is_no_difference(rig: Rig) -> None:
    gone, stays = rig.ask(), rig.ask()
    beat(rig, active=1)
    rig.service.cancel(gone.id, "by its caller")
    rig.turn()
    late = rig.ask()  # sent after the question
    answer(rig, gone.id, stays.id)
    assert rig.runner.of_kind(Cancel) == [Cancel(gone.id)]
    assert (stays.read(), late.read()) == (None, None)


def test_as_long_as_the_numbers_agree_names_are_compared_only_now_and_then(rig: Rig) -> None:
    rig.ask()
    beat(rig, active=1, times=20)
    assert rig.runner.of_kind(Stats) == []
    for _ in range(31):
        rig.clock.advance(1)
        beat(rig, active=1, times=1)
    assert len(rig.runner.of_kind(Stats)) == 1
