"""After the device slept: what the loop may still believe, so that it goes on without a bump.

Sensors answer late after a sleep and the chip is cooler than it was; caps may be gone with nobody
to blame. Budgets and steps stay; the filters begin again. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from stoker.core.caps import away
from stoker.core.failsafe import Trust
from stoker.core.thermal_state import ThermalState, ZoneState
from stoker.units import Kelvin, Seconds, Watts

SLEPT_S: Final = 1.0
"""CLOCK_BOOTTIME ran ahead of CLOCK_MONOTONIC by so much between two ticks: we slept."""

GRACE_S: Final = 5.0
"""Drivers need seconds to wake their sensors: only then does a missing one count."""


def resume(state: ThermalState, now_s: Seconds) -> ThermalState:
    """Levels are kept (STOP is left only by proof), readings from before are forgotten; but a value
    that had to move is not proven by a sleep."""
    zones = {
        name: ZoneState(
            trust=_trust(zone.trust, now_s),
            limits_khz=zone.limits_khz,
            power=replace(zone.power, filtered_c=None, slope_k_per_s=0.0, error_k=Kelvin(0.0)),
        )
        for name, zone in state.zones.items()
    }
    known = {name: away(cap) for name, cap in state.caps.items()}
    return replace(state, zones=zones, caps=known)


def _trust(trust: Trust, now_s: Seconds) -> Trust:
    return replace(
        trust,
        seen_s=Seconds(now_s + GRACE_S),
        window=(),
        median_c=None,
        odd=0,
        good_since_s=None,
        power_mean_w=None,
        power_low_w=Watts(0.0),
        power_high_w=Watts(0.0),
    )
