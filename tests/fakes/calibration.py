"""A calibration that is done at once, and parts for tests of the real one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from stoker.events.operating import Calibration, Point, PointTable, Setting
from stoker.units import KiloHertz, Watts


class FakeCalibration:
    """A CalibrationDoor with two points, which is done at once."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool]] = []
        self._listener: Callable[[Calibration], None] = lambda _view: None
        points = tuple(
            Point(Setting("decode", threads, (("policy0", KiloHertz(1_500_000)),)), watts, rate)
            for threads, watts, rate in ((2, Watts(2.0), 9.0), (1, Watts(2.5), 8.0))
        )
        self._table = PointTable("fake", "fake", "f", 2, 3, points=points)
        self._view = Calibration(table=self._table)

    def listen(self, listener: Callable[[Calibration], None]) -> None:
        self._listener = listener

    def view(self) -> Calibration:
        return self._view

    def calibrate(self, caller: str, *, fresh: bool) -> Future[None]:
        self.asked.append((caller, fresh))
        self._view = Calibration("done", 2, 3, "one point is left", self._table)
        self._listener(self._view)
        return _done()

    def cancel(self) -> Future[None]:
        return _done()

    def caller_vanished(self, unique_name: str) -> None: ...


def _done() -> Future[None]:
    done: Future[None] = Future()
    done.set_result(None)
    return done
