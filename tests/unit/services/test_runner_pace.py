"""Threads and duty reach every runner once; a measure has the runner for itself."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from tests.unit.services.inference_rig import Rig

from stoker import errors
from stoker.events import runner as wire
from stoker.events.operating import Measured, Setting
from stoker.units import Seconds


def threads_sent(rig: Rig) -> list[tuple[int, int, float]]:
    sent = [request for request in rig.runner.sent if isinstance(request, wire.SetThreads)]
    return [(request.threads, request.threads_batch, request.duty) for request in sent]


def started() -> Rig:
    rig = Rig()
    rig.start()
    return rig


def test_a_change_is_sent_once_and_small_ones_not_at_all() -> None:
    rig = started()
    for duty in (1.0, 0.51, 0.505, 0.5):
        rig.service.pace(1, 2, duty)
        rig.turn()
    assert threads_sent(rig) == [(1, 2, 1.0), (1, 2, 0.5)]
    assert rig.service.snapshot().threads == 1
    assert rig.service.snapshot().most_threads == 2


def test_as_configured_is_what_a_load_has_set() -> None:
    rig = started()
    rig.service.pace(0, 0, 1.0)
    rig.turn()
    assert threads_sent(rig) == []
    rig.service.pace(1, 0, 1.0)
    rig.turn()
    rig.service.pace(0, 0, 1.0)
    rig.turn()
    assert threads_sent(rig) == [(1, 2, 1.0), (2, 2, 1.0)]


def test_more_threads_than_the_runner_was_given_are_never_sent() -> None:
    rig = started()
    rig.service.pace(9, 9, 1.0)
    rig.turn()
    assert threads_sent(rig) == [(2, 2, 1.0)]


def test_the_next_runner_hears_of_it_too() -> None:
    rig = started()
    rig.service.pace(1, 1, 0.5)
    rig.turn()
    rig.runner.die(signal=9)
    rig.turn()
    rig.pass_time(1.0)
    rig.make_ready()
    assert threads_sent(rig) == [(1, 1, 0.5)]


def test_how_busy_it_is_follows_threads_and_duty() -> None:
    rig = started()
    assert rig.service.activity() == 0.0
    rig.ask()
    assert rig.service.activity() == 1.0
    rig.service.pace(1, 1, 0.5)
    rig.turn()
    assert rig.service.activity() == 0.25


def test_a_job_reads_until_its_first_word() -> None:
    rig = started()
    assert rig.service.work().phase == ""
    asked = rig.ask()
    assert rig.service.work().phase == "prefill"
    rig.runner.stream(asked.id, "Hello")
    rig.turn()
    assert rig.service.work().phase == "decode"
    rig.runner.stream(asked.id, done=True)
    rig.turn()
    work = rig.service.work()
    assert (work.phase, work.tokens_read) == ("", 3)


def measure(rig: Rig) -> Future[Measured]:
    ended = rig.service.measure(Setting("decode", 1), Seconds(0.5))
    rig.turn()
    return ended


def test_a_measure_holds_new_jobs_for_its_time_and_gives_its_numbers() -> None:
    rig = started()
    ended = measure(rig)
    query = rig.runner.of_kind(wire.Measure)[0]
    assert isinstance(query, wire.Measure)
    assert (query.phase, query.threads, query.limit_ms) == ("decode", 1, 500)
    rig.ask()
    assert rig.runner.of_kind(wire.Generate) == []
    rig.runner.say(wire.Answer(query.id, {"tokens": 20, "wall_s": 0.5, "cpu_s": 0.4}))
    rig.turn()
    assert ended.result(0) == Measured(20, Seconds(0.5), 0.8)
    assert len(rig.runner.of_kind(wire.Generate)) == 1


def test_no_measure_while_a_job_runs_or_another_measure_does() -> None:
    rig = started()
    first = measure(rig)
    with pytest.raises(errors.Busy):
        measure(rig).result(0)
    query = rig.runner.of_kind(wire.Measure)[0]
    assert isinstance(query, wire.Measure)
    rig.runner.say(wire.Failed(query.id, "engine-failed", "cannot measure: no"))
    rig.turn()
    assert first.exception(0) is not None
    rig.ask()
    with pytest.raises(errors.Busy):
        measure(rig).result(0)


def test_a_runner_that_dies_in_a_measure_fails_it_and_jobs_go_on() -> None:
    rig = started()
    ended = measure(rig)
    rig.runner.die(signal=9)
    rig.turn()
    assert ended.exception(0) is not None
    rig.pass_time(1.0)
    rig.make_ready()
    rig.ask()
    assert len(rig.runner.of_kind(wire.Generate)) == 1
