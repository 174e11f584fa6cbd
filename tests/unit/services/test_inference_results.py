"""What stays of a job that ended: how much, for whom, and what it costs."""

from __future__ import annotations

import gc
import os

import pytest
from tests.unit.services.inference_rig import ALICE, BOB, Asked, Rig, config

from stoker import errors
from stoker.services.job_book import MAX_UNREAD


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


def test_results_count_as_memory_holds_them() -> None:
    rig = Rig(config(keep_results_bytes=64 << 10))
    rig.start()
    for _ in range(8):  # 8 x 4 KB on the wire, four times that here
        asked = rig.ask()
        rig.runner.stream(asked.id, "\U0001f600" + "x" * 4000, done=True)
        rig.turn()
        asked.close()
    assert len([job for kind, job in rig.heard if kind == "forgotten"]) >= 4


def test_a_remembered_job_keeps_its_answer_but_not_its_prompt(rig: Rig) -> None:
    asked = rig.ask("long " * 1000)
    for _ in range(50):
        rig.runner.stream(asked.id, "é")
        rig.turn(1)
    rig.runner.stream(asked.id, "", done=True)
    rig.turn()
    job = rig.loop.desk.known(asked.id)
    assert rig.loop.desk.view(job).text == "é" * 50
    assert (job.ask.prompt, job.text, job.kept_bytes) == ("", ["é" * 50], 100)
    asked.close()


def test_a_remembered_job_is_few_things_for_the_collector(rig: Rig) -> None:
    """It looks through all of them while every thread waits, the one that holds the heat too."""
    rig.loop.reconfigure(config(queue_limit=64))

    def some(number: int) -> None:
        for _ in range(number):
            asked = rig.ask()
            rig.runner.stream(asked.id, "x", done=True)
            rig.turn()
            asked.close()
        rig.heard.clear()
        rig.runner.sent.clear()
        gc.collect()

    some(10)
    before = len(gc.get_objects())
    some(50)
    assert (len(gc.get_objects()) - before) / 50 < 6


def test_a_turn_does_not_look_at_jobs_that_are_only_remembered(rig: Rig) -> None:
    done, running = rig.ask(), rig.ask()
    rig.runner.stream(done.id, "x", done=True)
    rig.turn()
    assert [job.id for job in rig.loop.desk.book] == [running.id]
    assert rig.loop.desk.book.get(done.id) is not None
    done.close()
    running.close()


LONG = "x" * 100_000  # more than a pipe holds


@pytest.mark.parametrize("settings", [{"keep_result_s": 0.0}, {"keep_results_bytes": 1024}])
def test_a_slow_reader_gets_the_last_line_of_a_job_that_is_old_already(
    settings: dict[str, float],
) -> None:
    """Forgetting it must not cut the stream: no word of how it ended is a broken promise."""
    rig = Rig(config(**settings))
    rig.start()
    asked = rig.ask()
    rig.runner.stream(asked.id, LONG, done=True)
    text = b""
    for _ in range(200):  # takes bits, for longer than results are kept
        rig.pass_time(1)
        text += os.read(asked.reader, 1000)
    while part := asked.read():
        text += part
        rig.turn()
    assert b'"done"' in text.splitlines()[-1]
    rig.turn()
    assert ("forgotten", asked.id) in rig.heard
    asked.close()


def test_answers_that_nobody_reads_stop_their_user_and_no_other(rig: Rig) -> None:
    unread: list[Asked] = []
    while len(unread) < MAX_UNREAD:
        unread.append(rig.ask())
        rig.runner.stream(unread[-1].id, LONG, done=True)
        rig.turn()
    with pytest.raises(errors.QuotaExceeded, match="not read yet"):
        rig.ask().future.result(0)
    assert rig.ask(owner=BOB).future.result(0)
    unread[0].close()
    rig.turn()
    assert rig.ask().future.result(0)
    for asked in unread[1:]:
        asked.close()


def test_a_result_that_is_cut_has_an_end_and_no_hole() -> None:
    rig = Rig(config(max_result_bytes=10))
    rig.start()
    asked = rig.ask()
    rig.runner.stream(asked.id, "12345678", "too long", "9", done=True)
    rig.turn()
    view = rig.loop.desk.view(rig.loop.desk.known(asked.id))
    assert (view.text, view.truncated) == ("12345678", True)
    asked.close()
