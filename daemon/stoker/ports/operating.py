"""Operating points as services and doors see them: who measures, and how it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from threading import Event
from typing import Protocol

from stoker.core.thermal_plan import ThermalPlan
from stoker.events.operating import Calibration, Measured, PointTable, Setting
from stoker.events.thermal import ThermalSnapshot
from stoker.units import KiloHertz, Seconds


class SpeedMeter(Protocol):
    """The runner, or the token model of a simulated board."""

    def measure(self, setting: Setting, limit_s: Seconds) -> Future[Measured]:
        """At the clock as it is. Fails with Busy while anybody is answered."""


class Heat(Protocol):
    """The thermal loop, as a calibration needs it. Any thread."""

    @property
    def plan(self) -> ThermalPlan: ...

    def snapshot(self) -> ThermalSnapshot: ...

    def want(self, caps_khz: Mapping[str, KiloHertz] | None) -> Event:
        """A calibration's clocks, as far as the wall allows; None: the law's own again. Set
        once the loop has acted on it."""
        ...

    def granted_khz(self) -> Mapping[str, KiloHertz | None]: ...

    def poke(self) -> None: ...

    def use_points(self, table: PointTable | None, threads: int) -> None: ...


class CalibrationDoor(Protocol):
    """What the doors in may ask. Any thread; nothing blocks."""

    def listen(self, listener: Callable[[Calibration], None]) -> None: ...

    def view(self) -> Calibration: ...

    def calibrate(self, caller: str, *, fresh: bool) -> Future[None]:
        """Begin, or go on where the last one ended; ``fresh`` forgets what was measured. Busy
        while one runs, ModelUnavailable without a model. It ends when ``caller`` leaves."""

    def cancel(self) -> Future[None]:
        """Done when everything is as it was."""

    def caller_vanished(self, unique_name: str) -> None: ...
