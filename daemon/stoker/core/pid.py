"""Velocity PI on the power budget of one thermal zone: how many watts may burn now.

Watts, not MHz: the plant's gain per watt is near constant, per MHz it triples across
the table. The law (docs/thermal.md): filter the temperature, look ahead along a filtered
slope, integrate the increment, fall fast and rise slowly; aim closer to the wall once settled.
The velocity form with a clamp cannot wind up. Must not: know frequencies, sensors or the time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stoker.units import Celsius, Kelvin, Seconds, Watts


@dataclass(frozen=True, slots=True)
class PidGains:
    """Starting gains of docs/thermal.md. Slews are fractions of the full power per second."""

    gain_w_per_k: float  # 1 / (R1 + R2 + R3)
    power_min_w: Watts
    power_max_w: Watts
    margin_k: Kelvin = Kelvin(1.5)
    reset_s: Seconds = Seconds(4.0)  # 20 s lagged the slow nodes: 82 s above a Pi 5's wall
    settled_part: float = 0.5  # of the margin, once the temperature stands still at the target
    settle_s: Seconds = Seconds(60.0)  # how slowly the margin shrinks to that
    filter_s: Seconds = Seconds(0.5)
    slope_filter_s: Seconds = Seconds(3.0)
    look_ahead_s: Seconds = Seconds(6.0)
    look_ahead_limit_k: Kelvin = Kelvin(1.0)  # a quick die's slope ends within milliseconds
    fall_per_s: float = 2.0
    rise_per_s: float = 0.1
    release_above_k: Kelvin = Kelvin(4.0)
    release_per_s: float = 1.0


@dataclass(frozen=True, slots=True)
class PidState:
    """``filtered_c`` is None until the first sample; then the budget is still the full one.
    ``margin_k`` None = the whole margin."""

    budget_w: Watts
    filtered_c: Celsius | None = None
    slope_k_per_s: float = 0.0
    error_k: Kelvin = Kelvin(0.0)
    margin_k: Kelvin | None = None


@dataclass(frozen=True, slots=True)
class PidInput:
    """One sample. ``ceiling_w`` is what others leave us (the kernel caps lower); it makes
    the hand-over bumpless, because the budget never runs ahead of what can be spent.
    ``may_rise`` is False while the readings are in doubt or the wall is reached.
    """

    temperature_c: Celsius
    wall_c: Celsius
    dt_s: Seconds
    ceiling_w: Watts
    may_rise: bool = True


LONGEST_STEP_S = 2.0
"""A stalled tick must not integrate an error that it did not see."""


_ABSURD_C = 1000.0
"""The fail-safe lets nothing near it pass; here it only keeps the arithmetic finite."""


def start(gains: PidGains) -> PidState:
    """Full budget: nothing is limited before there is a reason."""
    return PidState(budget_w=gains.power_max_w)


def hold(state: PidState, gains: PidGains, budget_w: Watts) -> PidState:
    """The budget set from outside (fail-safe, restart): the law goes on from there."""
    return PidState(
        budget_w=_clamp(budget_w, gains.power_min_w, gains.power_max_w),
        filtered_c=state.filtered_c,
        slope_k_per_s=state.slope_k_per_s,
        error_k=state.error_k,
        margin_k=state.margin_k,
    )


def step(gains: PidGains, state: PidState, sample: PidInput) -> tuple[PidState, Watts]:
    """One increment of the law; the budget stays in power_min_w..power_max_w, always finite."""
    if not -_ABSURD_C < sample.temperature_c < _ABSURD_C or sample.dt_s < 0:
        return state, state.budget_w
    dt_s = min(sample.dt_s, LONGEST_STEP_S)
    filtered_c, slope = _filter(gains, state, sample.temperature_c, dt_s, sample.dt_s)
    ahead_k = min(0.5 * gains.look_ahead_s * max(slope, 0.0), gains.look_ahead_limit_k)
    margin_k = _margin(gains, state, sample.wall_c - filtered_c, slope, dt_s)
    error_k = (sample.wall_c - margin_k) - (filtered_c + ahead_k)
    before_k = error_k if state.filtered_c is None else state.error_k
    change_w = gains.gain_w_per_k * ((error_k - before_k) + error_k * dt_s / gains.reset_s)
    full_w = gains.power_max_w
    rise_per_s = gains.rise_per_s
    if error_k > gains.release_above_k:
        # Clearly cool: waiting for the integral would only lose work.
        rise_per_s = gains.release_per_s
        change_w = max(change_w, rise_per_s * full_w * dt_s)
    highest_w = rise_per_s * full_w * dt_s if sample.may_rise else 0.0
    change_w = _clamp(change_w, -gains.fall_per_s * full_w * dt_s, highest_w)
    top_w = max(gains.power_min_w, min(full_w, sample.ceiling_w))
    budget_w = Watts(_clamp(state.budget_w + change_w, gains.power_min_w, top_w))
    return PidState(budget_w, Celsius(filtered_c), slope, Kelvin(error_k), margin_k), budget_w


_NEAR_K, _STILL_K_PER_S = 1.0, 0.1
_SCARED_PART = 0.7  # of the settled margin: nearer to the wall than that, the margin grows again
_SCARED_K_PER_S = 1.0


def _margin(
    gains: PidGains, state: PidState, distance_k: float, slope: float, dt_s: float
) -> Kelvin:
    """Whole while the load is new, since the law lags behind slow nodes and overshoots; part of
    it once the temperature stands still while limited; more again when the wall comes near."""
    settled_k = gains.settled_part * gains.margin_k
    before_k = gains.margin_k if state.margin_k is None else state.margin_k
    margin_k: float = before_k
    if distance_k < _SCARED_PART * settled_k:
        margin_k = min(gains.margin_k, before_k + _SCARED_K_PER_S * dt_s)
    elif distance_k > before_k + gains.release_above_k:
        margin_k = gains.margin_k
    elif (
        state.budget_w < gains.power_max_w
        and abs(distance_k - before_k) < _NEAR_K
        and abs(slope) < _STILL_K_PER_S
    ):
        margin_k = before_k + (settled_k - before_k) * -math.expm1(-dt_s / gains.settle_s)
    return Kelvin(margin_k)


def _filter(
    gains: PidGains, state: PidState, temperature_c: float, dt_s: float, elapsed_s: float
) -> tuple[float, float]:
    """First-order filters with their exact discrete gain, so that any period gives one law."""
    if state.filtered_c is None:
        return temperature_c, 0.0
    if dt_s == 0:
        return state.filtered_c, state.slope_k_per_s
    blend = -math.expm1(-elapsed_s / gains.filter_s)
    filtered_c = state.filtered_c + blend * (temperature_c - state.filtered_c)
    raw_slope = (filtered_c - state.filtered_c) / elapsed_s
    blend = -math.expm1(-elapsed_s / gains.slope_filter_s)
    return filtered_c, state.slope_k_per_s + blend * (raw_slope - state.slope_k_per_s)


def _clamp(value: float, low: float, high: float) -> Watts:
    return Watts(min(max(value, low), high))
