"""org.stoker.Thermal1: heat as the control loop sees it, and calibration for administrators."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from stoker.api import contract
from stoker.api.exports import Answer, Door, Later, bus_text, vardict
from stoker.api.managing import as_manager
from stoker.core import headroom
from stoker.core.operating_points import front
from stoker.errors import InvalidRequest, StokerError
from stoker.events.heat_finds import Found
from stoker.events.inference import Owner
from stoker.events.operating import PHASES, Calibration, Point
from stoker.events.thermal import FrequencyPolicy, Reading, Sensor, ThermalSnapshot
from stoker.getters import Table
from stoker.ports.doors import ThermalDetails, ThermalDoor
from stoker.ports.operating import CalibrationDoor
from stoker.ports.system import Authority


class ThermalRoom:
    def __init__(
        self, service: ThermalDoor, calibration: CalibrationDoor, authority: Authority
    ) -> None:
        self._service, self._calibration = service, calibration
        self._authority = authority

    def door(self) -> Door:
        return Door(
            contract.THERMAL,
            {
                "Details": self.details,
                "Discover": self.discover,
                "Calibrate": self.calibrate,
                "CancelCalibration": self.cancel_calibration,
                "OperatingPoints": self.operating_points,
            },
            lambda _owner: properties(self._service.snapshot(), self._calibration.view()),
        )

    def calibrate(self, owner: Owner, args: tuple[Any, ...]) -> Later:
        fresh = parse_options(args[0])
        begun = as_manager(
            self._authority, owner, "calibrate",
            lambda: self._calibration.calibrate(owner.unique_name, fresh=fresh),
        )  # fmt: skip
        return Later(begun, lambda _begun: Answer())

    def cancel_calibration(self, owner: Owner, _args: tuple[Any, ...]) -> Later:
        ended = as_manager(self._authority, owner, "stop the calibration", self._calibration.cancel)
        return Later(ended, lambda _ended: Answer())

    def operating_points(self, _owner: Owner, _args: tuple[Any, ...]) -> Answer:
        return Answer((pack_points(self._calibration.view()),))

    def details(self, _owner: Owner, _args: tuple[Any, ...]) -> Answer:
        return Answer((pack(self._service.details(), self._service.lateness()),))

    def discover(self, _owner: Owner, _args: tuple[Any, ...]) -> Later:
        return Later(self._service.discover(), lambda found: Answer(([*map(_found, found)],)))


class HeadroomSignal:
    """Says when the headroom crosses a threshold. Main loop only; ``send`` takes the body."""

    def __init__(self, first: float, send: Callable[[tuple[float, bool, float]], None]) -> None:
        self._below, _news = headroom.crossed(0, first)
        self._send = send

    def offer(self, now: ThermalSnapshot) -> None:
        self._below, news = headroom.crossed(self._below, now.headroom)
        for crossing in news:
            self._send((crossing.threshold, crossing.above, round(float(now.headroom), 3)))


def parse_options(options: Mapping[str, object]) -> bool:
    """Whether all is measured anew. Raises InvalidRequest."""

    def fail(path: str, reason: str) -> StokerError:
        return InvalidRequest(
            f"cannot read request: options.{path}: {reason}", details={"path": f"options.{path}"}
        )

    table = Table(options, fail)
    fresh = table.flag("fresh", False)
    table.finish()
    return fresh


def properties(now: ThermalSnapshot, measuring: Calibration) -> dict[str, Any]:
    """Tenths of a degree: what a sensor jitters below that is no news to anyone."""
    celsius = now.temperature_c
    return {
        "Temperature": math.nan if celsius is None else round(float(celsius), 1),
        "Wall": float(now.wall_c),
        "Headroom": round(float(now.headroom), 3),
        "HeadroomThresholds": list(headroom.THRESHOLDS),
        "Cap": min(now.cap_khz.values(), default=0),
        "State": now.state,
        "Calibration": measuring.state,
        "CalibrationProgress": round(measuring.progress, 3),
        "CalibrationReason": bus_text(measuring.reason),
    }


def pack(details: ThermalDetails, late: Mapping[int, int]) -> dict[str, Any]:
    now = details.snapshot
    known: dict[str, tuple[str, Any]] = {}
    if now.power_w is not None:
        known["power_w"] = ("d", float(now.power_w))
    if now.firmware:
        known["firmware"] = ("as", list(now.firmware))
    if now.point is not None:
        known["point_watts"] = ("d", float(now.point.watts))
        known["point_tokens_per_s"] = ("d", float(now.point.tokens_per_s))
    return vardict(
        **known,
        lateness=("a{ut}", dict(late)),
        points=("s", now.points),
        phase=("s", now.phase),
        duty=("d", float(now.duty)),
        threads=("u", now.threads),
        threads_batch=("u", now.threads_batch),
        law=("s", now.law),
        board=("s", now.board),
        sensor=("s", now.sensor),
        actuator=("s", now.actuator),
        reason=("s", now.reason),
        period_s=("d", float(now.period_s)),
        caps_khz=("a{su}", {bus_text(name): int(cap) for name, cap in now.cap_khz.items()}),
        sensors=("aa{sv}", [_sensor(sensor, reading) for sensor, reading in details.sensors]),
        policies=("aa{sv}", [_policy(policy) for policy in details.policies]),
    )


def pack_points(measuring: Calibration) -> dict[str, Any]:
    table = measuring.table
    if table is None:
        return {}
    best = {point for phase in PHASES for point in front(table.points, phase)}
    return vardict(
        board=("s", table.board),
        model=("s", table.model),
        complete=("b", table.complete),
        metered=("b", table.metered),
        size=("u", table.size),
        skipped=("as", [bus_text(why) for _setting, why in table.skipped]),
        points=("aa{sv}", [_point(point, point in best) for point in table.points]),
    )


def _point(point: Point, best: bool) -> dict[str, Any]:
    setting = point.setting
    return vardict(
        phase=("s", setting.phase),
        threads=("u", setting.threads),
        caps_khz=("a{su}", {bus_text(name): int(khz) for name, khz in setting.caps}),
        watts=("d", float(point.watts)),
        tokens_per_s=("d", float(point.tokens_per_s)),
        best=("b", best),
    )


def _found(found: Found) -> dict[str, Any]:
    thing = found.finding
    texts = {
        "kind": thing.kind,
        "name": thing.name,
        "path": thing.path,
        "value": thing.value,
        "use": found.use,
        "fault": thing.fault,
        "denied": thing.denied,
        "grant": found.grant,
    }
    return vardict(**{key: ("s", text) for key, text in texts.items() if text})


def _sensor(sensor: Sensor, reading: Reading) -> dict[str, Any]:
    facts = vardict(name=("s", sensor.name), kind=("s", sensor.kind), path=("s", sensor.path))
    if reading.temperature_c is None:
        return facts | vardict(fault=("s", reading.fault or "unknown"))
    return facts | vardict(temperature_c=("d", float(reading.temperature_c)))


def _policy(policy: FrequencyPolicy) -> dict[str, Any]:
    return vardict(
        name=("s", policy.name),
        min_khz=("u", int(policy.min_khz)),
        max_khz=("u", int(policy.max_khz)),
        writable=("b", policy.writable),
    )
