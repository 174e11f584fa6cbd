"""What the loop works on: zones with their walls, gains and ladders, made once per discovery.

Pure: from a board preset, the settings and what the drivers found to a frozen plan. A
change of the hardware (hotplug, a vanished zone) makes a new plan, never a changed one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from stoker.config.schema import ThermalConfig
from stoker.core.boards import STOP_DISTANCE_K, BoardPreset, SensorChoice, critical, wall
from stoker.core.calibration import filled, scaled, usable
from stoker.core.failsafe import Limits
from stoker.core.operating_points import Fronts, fronts
from stoker.core.opp import Ladder, PowerTable, Rung, ladder, power_table
from stoker.core.pid import PidGains
from stoker.errors import ConfigInvalid
from stoker.events.heat_finds import PowerMeter
from stoker.events.operating import PointTable
from stoker.events.thermal import FrequencyPolicy, Sensor
from stoker.units import Celsius, Seconds, Watts

GRANT = "/usr/libexec/stoker/grant"
"""Run as root before stokerd starts and by udev: policies/udev/60-stoker.rules."""

LOWEST_BUDGET = 0.1
"""Of the full power. Below the lowest frequency step the rest is paced (headroom)."""


@dataclass(frozen=True, slots=True)
class ZonePlan:
    """One controlled sensor and the policies that heat it."""

    sensor: Sensor
    wall_c: Celsius
    wall_rule: str
    limits: Limits
    gains: PidGains
    ladder: Ladder
    policies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ThermalPlan:
    board: str
    wall_c: Celsius
    period_min_s: Seconds
    period_max_s: Seconds
    zones: tuple[ZonePlan, ...] = ()
    policies: Mapping[str, FrequencyPolicy] = field(default_factory=dict)
    tables: Mapping[str, PowerTable] = field(default_factory=dict)
    actuated: frozenset[str] = frozenset()  # policies that we may cap
    law: str = "pi"
    meter: PowerMeter | None = None  # measures what we burn; None = it is estimated
    notice: str = ""  # why nothing is sensed or nothing is actuated; "" = all is there
    board_ladder: Ladder | None = None  # of all policies; None = there are none
    full_w: Watts = Watts(0.0)  # the board's budget: all CPUs at their highest clock
    fronts: Fronts | None = None  # of the loaded model, where it was calibrated
    devfreq: frozenset[str] = frozenset()  # other clocks that the headroom limits
    points: str = ""  # why its operating points are not used; "" = they are, or none is loaded

    @property
    def board_zones(self) -> tuple[ZonePlan, ...]:
        """Those that see every policy; where there is none, all of them. Their budget is spent on
        operating points, which are the whole board's; the others hold their own policies."""
        whole = tuple(zone for zone in self.zones if set(zone.policies) == set(self.tables))
        return whole or self.zones

    @property
    def sets_clocks(self) -> bool:
        """Every policy may be capped; with some of them only, threads and pacing are left."""
        return bool(self.tables) and set(self.actuated) == set(self.tables)


def make_plan(
    preset: BoardPreset,
    config: ThermalConfig,
    sensors: Sequence[Sensor],
    policies: Sequence[FrequencyPolicy],
    meters: Sequence[PowerMeter] = (),
) -> ThermalPlan:
    """Never fails: without sensors or policies the plan says so in ``notice``."""
    tables = {p.name: power_table(p, preset.cluster(p.name)) for p in policies}
    zones = tuple(
        _zone(preset, config, sensor, choice, tables)
        for sensor, choice in _controlled(preset, config.sensors, sensors)
    )
    actuated = frozenset(p.name for p in policies if p.writable) if config.actuate else frozenset()
    rungs = ladder(list(tables.values())) if tables else None
    lowest_c = min((zone.wall_c for zone in zones), default=wall(preset, config.wall_c, ())[0])
    return ThermalPlan(
        board=preset.name,
        wall_c=lowest_c,
        period_min_s=config.period_min_s,
        period_max_s=Seconds(max(config.period_min_s, config.period_max_s)),
        zones=zones,
        policies={p.name: p for p in policies},
        tables=tables,
        actuated=actuated if zones else frozenset(),
        law=config.law,
        meter=_meter(preset, meters),
        notice=_notice(config, sensors, zones, policies, actuated),
        board_ladder=rungs,
        full_w=Watts(preset.assumed_full_w) if rungs is None else rungs.power_max_w,
        devfreq=frozenset(config.devfreq),
    )


def with_points(plan: ThermalPlan, table: PointTable | None, threads: int) -> ThermalPlan:
    """The plan with the operating points of a model; the reason where they cannot be used."""
    if table is None:
        return replace(plan, fronts=None, points="")
    reason = usable(table, plan.tables, threads, clocks=plan.sets_clocks)
    points = scaled(table, plan.full_w)
    if plan.board_ladder is not None and plan.sets_clocks:
        points = filled(points, plan.board_ladder, plan.tables)
    known = None if reason else fronts(points)
    return replace(plan, fronts=known, points=reason)


def check_sensors(config: ThermalConfig, sensors: Sequence[Sensor]) -> None:
    """Errors: ConfigInvalid that names the key of a sensor that this machine does not have."""
    _check("sensors", "sensor", config.sensors, [sensor.name for sensor in sensors])


def check_devfreq(config: ThermalConfig, devices: Sequence[str]) -> None:
    """The same of ``thermal.devfreq``: what is not there would be limited by nobody, silently."""
    _check("devfreq", "devfreq device", config.devfreq, devices)


def _check(key: str, noun: str, wanted: Sequence[str], there: Sequence[str]) -> None:
    for index, name in enumerate(wanted):
        if name not in there:
            raise ConfigInvalid(
                f"cannot use thermal.{key}[{index}]: there is no {noun} {name!r}",
                hint=f"{noun}s here: {', '.join(sorted(there)) or 'none'}",
                details={"path": f"thermal.{key}[{index}]"},
            )


def _controlled(
    preset: BoardPreset, wanted: Sequence[str], sensors: Sequence[Sensor]
) -> tuple[tuple[Sensor, SensorChoice], ...]:
    """Sensors are chosen by name from the preset: a Wi-Fi card's heat is not our business.
    ``wanted`` takes its place; what the preset knows of a sensor still counts."""
    by_name = {sensor.name: sensor for sensor in sensors}
    found: list[tuple[Sensor, SensorChoice]] = []
    chosen = preset.sensors
    if wanted:
        chosen = tuple(_choice(preset, name) for name in wanted)
    for choice in chosen:
        name = next((name for name in choice.names if name in by_name), None)
        if name is not None:
            found.append((by_name[name], choice))
    return tuple(found)


def _choice(preset: BoardPreset, name: str) -> SensorChoice:
    known = next((choice for choice in preset.sensors if name in choice.names), None)
    return SensorChoice((name,), () if known is None else known.policies)


def _meter(preset: BoardPreset, meters: Sequence[PowerMeter]) -> PowerMeter | None:
    by_name = {meter.name: meter for meter in meters}
    return next((by_name[name] for name in preset.power_meters if name in by_name), None)


def _zone(
    preset: BoardPreset,
    config: ThermalConfig,
    sensor: Sensor,
    choice: SensorChoice,
    tables: Mapping[str, PowerTable],
) -> ZonePlan:
    heating = tuple(name for name in tables if not choice.policies or name in choice.policies)
    rungs = ladder([tables[name] for name in heating]) if heating else _virtual(preset)
    wall_c, rule = wall(preset, config.wall_c, sensor.trips)
    full_w = rungs.power_max_w
    return ZonePlan(
        sensor=sensor,
        wall_c=wall_c,
        wall_rule=rule,
        limits=Limits(
            stop_c=Celsius(critical(preset, sensor.trips) - STOP_DISTANCE_K),
            slew_k_per_s=preset.slew_k_per_s,
            power_change_w=Watts(0.25 * full_w),
        ),
        gains=PidGains(
            gain_w_per_k=config.gain_w_per_k or preset.gain_w_per_k,
            power_min_w=Watts(LOWEST_BUDGET * full_w),
            power_max_w=full_w,
            margin_k=config.margin_k or preset.margin_k,
            reset_s=config.reset_s,
        ),
        ladder=rungs,
        policies=heating,
    )


def _virtual(preset: BoardPreset) -> Ladder:
    """No policy to cap: the budget still tells the scheduler how much to pace."""
    full_w = preset.assumed_full_w
    return Ladder((Rung(Watts(LOWEST_BUDGET * full_w), {}), Rung(Watts(full_w), {})))


def _notice(
    config: ThermalConfig,
    sensors: Sequence[Sensor],
    zones: Sequence[ZonePlan],
    policies: Sequence[FrequencyPolicy],
    actuated: frozenset[str],
) -> str:
    if not sensors:
        return "no thermal zone and no known hwmon chip on this machine"
    if not zones:
        names = ", ".join(sorted(sensor.name for sensor in sensors))
        return f"no sensor that the board preset names; found {names}"
    if not config.actuate:
        return "watching only: thermal.actuate is false"
    if not policies:
        return "watching only: this machine has no cpufreq"
    if not actuated:
        return (
            f"watching only: scaling_max_freq of {policies[0].name} is not writable; "
            f"{GRANT} gives group stoker that right"
        )
    return ""
