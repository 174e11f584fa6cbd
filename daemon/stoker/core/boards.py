"""Board presets: which sensors count, how hot is too hot, what a step costs in watts.

Parses the tables of policies/boards/*.toml (reading them is a driver's work), chooses the
preset of this board and derives the wall. Unknown keys are refused with their path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from stoker.errors import ConfigInvalid
from stoker.events.thermal import Trip
from stoker.getters import Table
from stoker.units import Celsius, Kelvin

TRIP_DISTANCE_K = 2.0
"""Below the kernel's passive trip, so that its governor never has to step in."""

STOP_DISTANCE_K = 5.0
"""This far below the critical trip inference pauses; the wall keeps 2 K more."""


@dataclass(frozen=True, slots=True)
class ClusterPower:
    """Power of the CPUs of some policies: watts = coefficient · activity · MHz · V² · CPUs."""

    name: str
    policies: tuple[str, ...]
    coefficient_uw: float  # µW/MHz/V², activity already multiplied in
    opps: tuple[tuple[float, float], ...]  # (MHz, mV), ascending
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class SensorChoice:
    """One controlled place: the first of ``names`` that exists; it heats ``policies``."""

    names: tuple[str, ...]
    policies: tuple[str, ...] = ()  # empty = all


@dataclass(frozen=True, slots=True)
class BoardMatch:
    compatible: tuple[str, ...] = ()
    dmi: tuple[str, ...] = ()  # lower-case parts of "vendor product"
    machines: tuple[str, ...] = ()
    fallback: bool = False


@dataclass(frozen=True, slots=True)
class BoardFacts:
    """What the device says of itself; see drivers/board_files.py."""

    compatible: tuple[str, ...] = ()  # device tree, most specific first
    dmi: str = ""  # "vendor product"
    machine: str = ""  # uname -m


@dataclass(frozen=True, slots=True)
class BoardPreset:
    name: str
    title: str
    match: BoardMatch
    wall_c: Celsius
    margin_k: Kelvin
    sensors: tuple[SensorChoice, ...]
    resistances_k_per_w: tuple[float, ...]
    wall_limit_c: Celsius | None = None  # firmware throttles above it: no setting may pass it
    critical_c: Celsius = Celsius(110.0)  # where the kernel names no critical trip
    slew_k_per_s: float = 15.0
    assumed_full_w: float = 10.0  # budget where there are no policies to add up
    expects_actuator: bool = True
    clusters: tuple[ClusterPower, ...] = ()
    power_meters: tuple[str, ...] = ()  # the first that exists measures the power burnt

    @property
    def gain_w_per_k(self) -> float:
        return 1.0 / sum(self.resistances_k_per_w)

    def cluster(self, policy: str) -> ClusterPower | None:
        return next((c for c in self.clusters if policy in c.policies), None)


def parse_board(data: Mapping[str, object], source: str) -> BoardPreset:
    """One preset file as tomllib gives it. Errors: ConfigInvalid naming ``source`` and key."""

    def fail(path: str, reason: str) -> ConfigInvalid:
        where = f"{source}: {path}" if path else source
        return ConfigInvalid(
            f"cannot read board preset {where}: {reason}",
            hint="the commented presets in policies/boards show every key",
            details={"path": path},
        )

    table = Table(data, fail)
    match = _match(table.table("match"))
    sensors = tuple(_sensor(entry) for entry in table.tables("sensors", max_items=32))
    clusters = tuple(_cluster(entry) for entry in table.tables("clusters", max_items=16))
    limit_c = table.number("wall_limit_c", 0.0, low=0, high=120)
    preset = BoardPreset(
        name=table.text("name", max_bytes=64),
        title=table.text("title", max_bytes=128),
        match=match,
        wall_c=Celsius(table.number("wall_c", low=40, high=110)),
        margin_k=Kelvin(table.number("margin_k", low=0, high=20)),
        sensors=sensors,
        resistances_k_per_w=_resistances(table),
        wall_limit_c=Celsius(limit_c) if limit_c else None,
        critical_c=Celsius(table.number("critical_c", 110.0, low=60, high=130)),
        slew_k_per_s=table.number("slew_k_per_s", 15.0, low=1, high=1000),
        assumed_full_w=table.number("assumed_full_w", 10.0, low=0.1, high=1000),
        expects_actuator=table.flag("expects_actuator", True),
        clusters=clusters,
        power_meters=table.texts("power_meters", ()),
    )
    table.finish()
    return preset


def choose_board(
    presets: Sequence[BoardPreset], facts: BoardFacts, wanted: str = "auto"
) -> BoardPreset:
    """By name, else device tree (most specific string first), DMI, machine, fallback.

    Errors: ConfigInvalid when ``wanted`` is unknown or there is no fallback preset.
    """
    if wanted != "auto":
        for preset in presets:
            if preset.name == wanted:
                return preset
        names = ", ".join(sorted(preset.name for preset in presets)) or "none"
        raise ConfigInvalid(
            f"cannot use board {wanted!r}: there is no such preset",
            hint=f"presets: auto, {names}",
            details={"path": "thermal.board"},
        )
    for compatible in facts.compatible:
        for preset in presets:
            if compatible in preset.match.compatible:
                return preset
    dmi = facts.dmi.lower()
    for preset in presets:
        if any(part in dmi for part in preset.match.dmi):
            return preset
    # A device tree without a match is an unknown board, whatever its processor.
    for preset in presets:
        if facts.machine in preset.match.machines and not facts.compatible:
            return preset
    for preset in presets:
        if preset.match.fallback:
            return preset
    raise ConfigInvalid("cannot choose a board preset: none matches and none is a fallback")


def critical(preset: BoardPreset, trips: Iterable[Trip]) -> Celsius:
    """The lowest critical or hot-shutdown trip, else the preset's."""
    found = [t.temperature_c for t in trips if t.kind == "critical" and t.temperature_c > 0]
    return min(found, default=preset.critical_c)


def wall(preset: BoardPreset, configured_c: Celsius, trips: Sequence[Trip]) -> tuple[Celsius, str]:
    """The wall and which rule set it; ``configured_c`` 0 = the preset's."""
    rules = [(configured_c, "configured") if configured_c > 0 else (preset.wall_c, "board preset")]
    if preset.wall_limit_c is not None:
        rules.append((preset.wall_limit_c, "below the firmware's throttle"))
    passive = [t.temperature_c for t in trips if t.kind == "passive" and t.temperature_c > 0]
    if passive:
        rules.append((Celsius(min(passive) - TRIP_DISTANCE_K), "2 K below the passive trip"))
    stop_c = critical(preset, trips) - STOP_DISTANCE_K
    rules.append((Celsius(stop_c - TRIP_DISTANCE_K), "below the critical trip"))
    return min(rules, key=lambda rule: rule[0])


def _match(table: Table) -> BoardMatch:
    match = BoardMatch(
        compatible=table.texts("compatible", ()),
        dmi=tuple(part.lower() for part in table.texts("dmi", ())),
        machines=table.texts("machines", ()),
        fallback=table.flag("fallback", False),
    )
    if "" in match.dmi or "" in match.compatible:
        table.refuse("", "an empty string matches every board")
    table.finish()
    return match


def _sensor(table: Table) -> SensorChoice:
    choice = SensorChoice(names=table.texts("names"), policies=table.texts("policies", ()))
    if not choice.names:
        table.refuse("names", "must name at least one sensor")
    table.finish()
    return choice


def _cluster(table: Table) -> ClusterPower:
    opps: list[tuple[float, float]] = []
    for entry in table.tables("opps", max_items=64):
        mhz = entry.number("mhz", low=1, high=20000)
        mv = entry.number("mv", low=100, high=3000)
        entry.finish()
        if opps and (mhz <= opps[-1][0] or mv < opps[-1][1]):
            table.refuse("opps", "must ascend in frequency and not fall in voltage")
        opps.append((mhz, mv))
    coefficient = table.number("coefficient_uw", low=1, high=100000)
    cluster = ClusterPower(
        name=table.text("name", max_bytes=64),
        policies=table.texts("policies"),
        coefficient_uw=coefficient * table.number("activity", 1.0, low=0.1, high=10),
        opps=tuple(opps),
        weight=table.number("weight", 1.0, low=0.01, high=10),
    )
    table.finish()
    return cluster


def _resistances(table: Table) -> tuple[float, ...]:
    value = table.raw("resistances_k_per_w")
    if not isinstance(value, list) or not 1 <= len(value) <= 8:
        _refuse(table, "expected a list of 1 to 8 numbers")
    out: list[float] = []
    for item in value:
        if isinstance(item, bool) or not isinstance(item, int | float) or not 0 < item < 1000:
            _refuse(table, f"{item!r} is not a resistance in K/W above 0")
        out.append(float(item))
    return tuple(out)


def _refuse(table: Table, reason: str) -> NoReturn:
    table.refuse("resistances_k_per_w", reason)
