"""The discovery report: what each thing found is used for and why, and what would help where a
permission is missing. Pure: findings and the plan in, lines of facts out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from stoker.core.thermal_plan import GRANT, ThermalPlan, ZonePlan
from stoker.events.heat_finds import Finding, Found

RULE: Final = "/usr/lib/udev/rules.d/60-stoker.rules"
_GRANTED: Final = ("max_freq", "scaling_governor", "energy_uj")  # also scaling_max_freq


def report(plan: ThermalPlan, findings: Iterable[Finding]) -> tuple[Found, ...]:
    """In the order of the findings; each says something in ``use``."""
    asked = [_asked(plan, finding) for finding in findings]
    return tuple(Found(finding, _use(plan, finding), grant(finding)) for finding in asked)


def _asked(plan: ThermalPlan, finding: Finding) -> Finding:
    """That a clock cannot be set is no fault where nobody asked for it."""
    if finding.kind == "devfreq" and finding.denied == "write" and finding.name not in plan.devfreq:
        return replace(finding, fault="", denied="")
    return finding


def grant(finding: Finding) -> str:
    """Which packaged file gives the missing right; "" when none is missing."""
    if not finding.denied:
        return ""
    if finding.fault == "EROFS" and finding.kind == "devfreq":
        return (
            "/sys is read-only here: in a container, mount it writable; as a service, "
            "'systemctl edit stoker' with a ReadWritePaths= for this device does it"
        )
    if finding.fault == "EROFS":
        return (
            "/sys is read-only here: in a container, mount it writable; as a service, the line "
            "ReadWritePaths=/sys/devices/system/cpu of stoker.service does it"
        )
    if finding.path.endswith(_GRANTED):
        return f"{GRANT} gives it to group stoker: stoker.service and {RULE} run it"
    return "no packaged rule grants this: it is only shown"


def _use(plan: ThermalPlan, finding: Finding) -> str:
    if finding.kind in ("zone", "hwmon"):
        zone = next((z for z in plan.zones if z.sensor.name == finding.name), None)
        if zone is not None:
            return _controlled(zone)
        if finding.fault:
            return "not used: it cannot be read"
        return f"shown only: board preset {plan.board} does not name it"
    if finding.kind == "cpufreq":
        return _capped(plan, finding)
    if finding.kind == "power":
        if plan.meter is not None and plan.meter.name == finding.name:
            return "measured power: tells a frozen sensor from a steady one"
        return "not used: it cannot be read" if finding.fault else "shown only"
    if finding.kind == "firmware":
        return "while it limits the clock, no cap of ours rises"
    return _limited(plan, finding)


def _limited(plan: ThermalPlan, finding: Finding) -> str:
    if finding.name not in plan.devfreq:
        return "shown only: thermal.devfreq does not name it"
    if finding.denied:
        return "not limited, though thermal.devfreq names it"
    return "limited to the headroom's part of its highest clock: thermal.devfreq names it"


def _controlled(zone: ZonePlan) -> str:
    policies = ", ".join(zone.policies) or "pacing"
    return f"holds {policies} below {zone.wall_c:g} °C ({zone.wall_rule})"


def _capped(plan: ThermalPlan, finding: Finding) -> str:
    if finding.name not in plan.policies:
        return "not used: its frequencies cannot be read"
    zones = ", ".join(zone.sensor.name for zone in plan.zones if finding.name in zone.policies)
    if not zones:
        return "not used: no controlled sensor belongs to it"
    if finding.name in plan.actuated:
        return f"capped for {zones}"
    if finding.denied:
        return f"watched for {zones}; instead of caps, answers are paced"
    return f"watched for {zones}: {plan.notice or 'not writable'}"
