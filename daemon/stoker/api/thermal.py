"""org.stoker.Thermal1: heat as the control loop sees it. Reads snapshots, changes nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from stoker.api import contract
from stoker.api.exports import Answer, Door, Later, bus_text, vardict
from stoker.core import headroom
from stoker.events.heat_finds import Found
from stoker.events.inference import Owner
from stoker.events.thermal import FrequencyPolicy, Reading, Sensor, ThermalSnapshot
from stoker.ports.doors import ThermalDetails, ThermalDoor


class ThermalRoom:
    def __init__(self, service: ThermalDoor) -> None:
        self._service = service

    def door(self) -> Door:
        return Door(
            contract.THERMAL,
            {"Details": self.details, "Discover": self.discover},
            lambda _owner: properties(self._service.snapshot()),
        )

    def details(self, _owner: Owner, _args: tuple[Any, ...]) -> Answer:
        return Answer((pack(self._service.details()),))

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


def properties(now: ThermalSnapshot) -> dict[str, Any]:
    """Tenths of a degree: what a sensor jitters below that is no news to anyone."""
    celsius = now.temperature_c
    return {
        "Temperature": math.nan if celsius is None else round(float(celsius), 1),
        "Wall": float(now.wall_c),
        "Headroom": round(float(now.headroom), 3),
        "HeadroomThresholds": list(headroom.THRESHOLDS),
        "Cap": min(now.cap_khz.values(), default=0),
        "State": now.state,
    }


def pack(details: ThermalDetails) -> dict[str, Any]:
    now = details.snapshot
    known: dict[str, tuple[str, Any]] = {}
    if now.power_w is not None:
        known["power_w"] = ("d", float(now.power_w))
    if now.firmware:
        known["firmware"] = ("as", list(now.firmware))
    return vardict(
        **known,
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
