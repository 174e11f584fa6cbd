"""What stays of a job that ended: how much, for whom, and what it costs."""

from __future__ import annotations

import pytest
from tests.unit.services.inference_rig import ALICE, BOB, Rig, config


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.start()
    return made


def test_a_users_flood_of_results_takes_no_other_users_answer_away() -> None:
    rig = Rig(config(keep_results_bytes=64 << 10))
    rig.start()
    kept = ""
    for number in range(40):
        asked = rig.ask(owner=ALICE if number else BOB)
        kept = kept or asked.id
        rig.runner.stream(asked.id, "x", done=True)
        rig.turn()
        asked.close()
    gone = {job for kind, job in rig.heard if kind == "forgotten"}
    assert len(gone) >= 20
    assert kept not in gone


def test_a_remembered_job_keeps_its_answer_but_not_its_prompt(rig: Rig) -> None:
    asked = rig.ask("long " * 1000)
    for _ in range(50):
        rig.runner.stream(asked.id, "é")
        rig.turn(1)
    rig.runner.stream(asked.id, "", done=True)
    rig.turn()
    job = rig.loop.known(asked.id)
    assert rig.loop.view(job).text == "é" * 50
    assert (job.ask.prompt, job.text, job.kept_bytes) == ("", ["é" * 50], 100)
    asked.close()


def test_a_turn_does_not_look_at_jobs_that_are_only_remembered(rig: Rig) -> None:
    done, running = rig.ask(), rig.ask()
    rig.runner.stream(done.id, "x", done=True)
    rig.turn()
    assert [job.id for job in rig.loop._book] == [running.id]
    assert rig.loop.find(done.id) is not None
    done.close()
    running.close()
