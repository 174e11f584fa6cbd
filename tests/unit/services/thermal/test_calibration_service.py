"""A calibration measures what the wall allows, keeps each point, and leaves nothing behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest
from tests.fakes.system import MemoryStateFile
from tests.fakes.thermal import TOP_KHZ, Rig

from stoker import errors
from stoker.drivers.token_model import tokens_per_s
from stoker.events.operating import Calibration, Measured, Setting
from stoker.ports.doors import InferenceSnapshot
from stoker.services.calibration import (
    COOL_S,
    LOOK_S,
    RELEASE_S,
    TRIES,
    CalibrationService,
)
from stoker.units import Seconds

READY = InferenceSnapshot(state="ready", model="tiny", fingerprint="abc", most_threads=4)


class Meter:
    """The token model of the simulated board, at the clock that it has now."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.settings: list[Setting] = []
        self.faults: list[errors.StokerError] = []
        self.each: Callable[[], None] = lambda: None

    def measure(self, setting: Setting, limit_s: Seconds) -> Future[Measured]:
        found: Future[Measured] = Future()
        self.settings.append(setting)
        self.each()
        if self.faults:
            found.set_exception(self.faults.pop(0))
            return found
        plant = self.rig.plant
        phase = setting.phase
        assert phase in ("prefill", "decode")
        rate = tokens_per_s(plant.spec, phase, setting.threads, plant.mhz)  # type: ignore[arg-type]
        found.set_result(Measured(round(1e4 * rate), Seconds(1e4), float(setting.threads)))
        return found


class Bench:
    def __init__(self, directory: Path) -> None:
        self.rig = Rig(directory)
        self.rig.run(1.0, load=0.0)
        self.load = self.late_s = self._next_s = 0.0
        self.meter = Meter(self.rig)
        self.store = MemoryStateFile()
        self.views: list[Calibration] = []
        self.service = self.new_service()

    def new_service(self) -> CalibrationService:
        service = CalibrationService(
            self.rig.service, self.meter, self.store, self.rig.clock, wait=self.wait
        )
        service.listen(self.views.append)
        service.heard(READY)
        self.rig.run(0.5, load=0.0)
        return service

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Time passes in the board, not here; the loop ticks and answers, ``late_s`` after one
        tick at the soonest, as on a busy machine.
        """
        rig = self.rig
        end_s = rig.clock.now_s + seconds
        while not event.is_set() and rig.clock.now_s < end_s - 1e-9:
            rest_s = min(end_s, self._next_s) - rig.clock.now_s
            if rest_s > 0:
                rig.board.advance(rest_s, self.load)
                rig.clock.now_s += rest_s
                continue
            self._next_s = rig.clock.now_s + self.late_s
            rig.service._pace.wait(Seconds(0.0))
            rig.run(1e-3, load=self.load)
        return event.is_set()

    def calibrate(self, *, fresh: bool = False) -> Calibration:
        self.service.calibrate(":1.1", fresh=fresh).result(0)
        self.service._ended.result(60)
        return self.service.view()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_every_point_is_measured_at_its_own_clock_and_then_all_is_as_before(bench: Bench) -> None:
    view = bench.calibrate()
    assert (view.state, view.done, view.progress) == ("done", 40, 1.0)
    assert view.table is not None
    assert view.table.complete
    rates = {p.setting: p.tokens_per_s for p in view.table.points}
    top = Setting("prefill", 4, (("policy0", TOP_KHZ),))  # type: ignore[arg-type]
    assert rates[top] == pytest.approx(28.0, rel=0.01)
    assert bench.rig.limit_khz() == TOP_KHZ
    assert bench.rig.journal.load() == ()
    assert bench.rig.service.snapshot().points == "in use"


def test_a_loop_that_is_late_is_waited_for_and_is_no_heat(bench: Bench) -> None:
    """A busy machine: the tick that sets the clock, or reads it back, comes after all pauses."""
    bench.late_s = 0.7
    view = bench.calibrate()
    assert (view.state, view.done) == ("done", 40)
    assert {seen.reason for seen in bench.views if seen.state == "waiting"} == set()
    assert bench.service._patience_s == COOL_S


def test_a_cancel_is_heard_while_the_loop_is_waited_for(bench: Bench) -> None:
    """Also where the loop does not tick at all."""
    waits: list[float] = []

    def wait(event: threading.Event, seconds: float) -> bool:
        waits.append(seconds)
        if len(waits) == 5:
            bench.service.cancel()
        return bench.wait(event, seconds)

    bench.rig.service.want = lambda caps_khz: threading.Event()  # type: ignore[method-assign]
    bench.service._wait = wait
    assert bench.calibrate().state == "cancelled"
    assert waits == [LOOK_S] * 5 + [RELEASE_S]  # the last one is for the clocks


def test_a_cancelled_one_goes_on_where_it_was(bench: Bench) -> None:
    def stop() -> None:
        if len(bench.meter.settings) == 21:
            bench.service.cancel()

    bench.meter.each = stop
    assert bench.calibrate().state == "cancelled"
    bench.rig.run(2.5, load=0.0)
    assert bench.rig.limit_khz() == TOP_KHZ
    assert "of 40 points" in bench.rig.service.snapshot().points
    kept = len(bench.meter.settings) // TRIES
    assert kept == 11
    bench.service = bench.new_service()  # as after a restart of stokerd
    assert bench.calibrate().state == "done"
    assert len(bench.meter.settings) == TRIES * 41  # the one that was stopped is made anew
    bench.calibrate()
    assert len(bench.meter.settings) == TRIES * 41  # nothing is left to do
    bench.calibrate(fresh=True)
    assert len(bench.meter.settings) == TRIES * 81


@pytest.mark.parametrize("end", ["done", "cancelled", "failed"])
def test_whoever_hears_of_the_end_finds_the_clocks_given_back_and_may_begin_again(
    bench: Bench, end: str
) -> None:
    """The loop answers a poke within its own time: the end is told after that, not before."""
    limits: list[int] = []

    def heard(view: Calibration) -> None:
        if view.state == end:
            limits.append(bench.rig.limit_khz())

    def act() -> None:
        if end == "cancelled" and len(bench.meter.settings) == 7:
            bench.service.cancel()
        if end == "failed" and len(bench.meter.settings) == 7:
            bench.meter.faults.append(errors.EngineFailed("cannot measure: it was stopped"))

    bench.service.listen(heard)
    bench.meter.each = act
    for _ in range(2):
        bench.meter.settings.clear()
        assert bench.calibrate(fresh=True).state == end
    assert limits == [TOP_KHZ] * 2


def test_it_ends_when_its_caller_leaves_and_not_when_others_do(bench: Bench) -> None:
    def leave() -> None:
        bench.service.caller_vanished(":1.9")
        if len(bench.meter.settings) == 3:
            bench.service.caller_vanished(":1.1")

    bench.meter.each = leave
    assert bench.calibrate().state == "cancelled"
    assert len(bench.meter.settings) < 10


def test_answers_come_first_and_have_the_whole_clock(bench: Bench) -> None:
    bench.meter.faults = [errors.Busy("cannot measure: answers are being made")] * 3
    limits: list[int] = []
    bench.service.listen(
        lambda view: limits.append(bench.rig.limit_khz()) if view.state == "waiting" else None
    )
    assert bench.calibrate().state == "done"
    assert "waiting" in [view.state for view in bench.views]
    assert any("answers are being made" in view.reason for view in bench.views)


def test_a_hot_board_leaves_points_for_another_time_and_never_crosses_its_wall(
    bench: Bench,
) -> None:
    bench.rig.plant.ambient_c = 35.0
    bench.rig.warm_to(76.0)
    bench.rig.run(5.0)
    bench.load = 1.0  # somebody else's
    view = bench.calibrate()
    assert view.state == "done"
    assert "another time" in view.reason
    assert "too hot" in view.reason
    assert bench.rig.peak_c < 79.5
    assert view.table is not None
    assert 0 < len(view.table.skipped) < 40
    assert bench.rig.service.snapshot().points != "in use"
    bench.load, bench.rig.plant.ambient_c = 0.0, 20.0
    bench.rig.run(600.0, load=0.0)
    complete = bench.calibrate().table
    assert complete is not None
    assert complete.complete
    bench.rig.run(1.0, load=0.0)
    assert bench.rig.service.plan.fronts is not None


def test_another_writer_that_caps_lower_is_not_measured_for_the_clock_we_wanted(
    bench: Bench,
) -> None:
    bench.meter.each = lambda: bench.rig.write_limit(600_000)
    view = bench.calibrate()
    assert view.table is not None
    measured = {dict(p.setting.caps)["policy0"] for p in view.table.points}
    assert measured <= {600_000}


def test_without_a_model_and_while_one_runs_it_is_refused(bench: Bench) -> None:
    bare = CalibrationService(
        bench.rig.service, bench.meter, MemoryStateFile(), bench.rig.clock, wait=bench.wait
    )
    with pytest.raises(errors.ModelUnavailable):
        bare.calibrate(":1.1", fresh=False).result(0)
    second: list[Future[None]] = []
    bench.meter.each = lambda: second.append(bench.service.calibrate(":1.2", fresh=False))
    bench.calibrate()
    with pytest.raises(errors.Busy):
        second[0].result(0)


def test_a_fault_of_the_runner_ends_it_typed_and_gives_the_clock_back(bench: Bench) -> None:
    bench.meter.faults = [errors.EngineFailed("cannot measure: the step was stopped")]
    view = bench.calibrate()
    assert (view.state, view.reason) == ("failed", "cannot measure: the step was stopped")
    bench.rig.run(2.5, load=0.0)
    assert bench.rig.limit_khz() == TOP_KHZ


def test_another_model_has_other_points_and_its_own_come_back(bench: Bench) -> None:
    bench.calibrate()
    bench.rig.run(1.0, load=0.0)
    other = InferenceSnapshot(state="ready", model="big", fingerprint="def", most_threads=4)
    bench.service.heard(other)
    bench.rig.run(1.0, load=0.0)
    assert bench.rig.service.snapshot().points == "none"
    bench.service.heard(READY)
    bench.rig.run(1.0, load=0.0)
    assert bench.rig.service.snapshot().points == "in use"


def test_others_work_is_told_for_it_spoils_the_numbers(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.service = CalibrationService(
        bench.rig.service, bench.meter, bench.store, bench.rig.clock,
        busy_cpu_s=lambda: 1.5 * bench.rig.clock.now_s, wait=bench.wait,
    )  # fmt: skip
    bench.service.heard(READY)
    bench.rig.run(0.5, load=0.0)
    assert "other programs used up to 1.5 CPUs" in bench.calibrate().reason


def test_news_of_another_model_never_put_running_back_after_the_end(bench: Bench) -> None:
    """The inference loop's thread changes the table while the calibration's thread ends."""
    ended = threading.Event()

    def slow(view: Calibration) -> None:
        if view.state == "running" and view.table is None and not ended.is_set():
            worker = threading.Thread(target=finish)
            worker.start()
            assert not ended.wait(0.05)  # it waits for this change to be told

    def finish() -> None:
        bench.service._change(state="done", reason="")
        ended.set()

    bench.service._change(state="running")
    bench.service.listen(slow)
    other = InferenceSnapshot(state="ready", model="big", fingerprint="def", most_threads=4)
    bench.service.heard(other)
    assert ended.wait(5)
    assert bench.service.view().state == "done"
    assert [view.state for view in bench.views][-1] == "done"
