"""Whether a temperature may be believed, and what to do while it may not.

Two small machines. ``judge`` looks at one reading (range, sentinels, slope after a median
of three, frozen) and yields a Signal; ``TABLE`` moves the level OK → DEGRADED → SAFE →
STOP. A missing value is never replaced by a number: unknown means less power, not 0 °C.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from statistics import median

from stoker.units import Celsius, Kelvin, Seconds, Watts


class Level(IntEnum):
    """Ascending severity. DEGRADED holds, SAFE takes middle steps and paces, STOP pauses."""

    OK = 0
    DEGRADED = 1
    SAFE = 2
    STOP = 3


class Signal(StrEnum):
    """What the last tick says of one sensor."""

    GOOD = "good"
    PROVEN = "proven"  # good for RECOVER_S, well below the critical trip, and alive
    GAP = "gap"  # no reading, for less than 1 s
    LATE = "late"  # none for 1 s
    SUSPECT = "suspect"  # frozen while the power changed
    LOST = "lost"  # none for 3 s
    IMPLAUSIBLE = "implausible"
    GONE = "gone"  # none for 10 s
    CRITICAL = "critical"  # within 5 K of the critical trip


LATE_S, LOST_S, GONE_S = 1.0, 3.0, 10.0
FROZEN_S = 60.0
"""Over which power is averaged before a sensor that stands still must have moved. A step from
idle to full power counts after 17 s, one of half the power after 42 s; a short question never."""
FORGET_S = 300.0
"""So slowly power of before stops to explain a value that still stands there: a quick die is as
hot as it gets at once, long before the mean is."""
RECOVER_S = 2.0
LOW_C, HIGH_C = -20.0, 125.0
SENTINELS_C = (0.0, -274.0, -256.0)
"""Drivers say "no data" with these: exactly 0, THERMAL_TEMP_INVALID, a dead Jetson sensor."""
COARSE_K = 3.0
"""Three steps of a coarse sensor (0.9 K): at 10 Hz two of them already look like 18 K/s."""
RESTART_DISTANCE_K = 5.0
"""After STOP it must be this much cooler than the stop temperature."""

_OK, _DEG, _SAFE, _STOP = Level.OK, Level.DEGRADED, Level.SAFE, Level.STOP
TABLE: dict[Signal, tuple[Level, Level, Level, Level]] = {
    # signal             from OK  DEGRADED SAFE   STOP
    Signal.GOOD: (_OK, _OK, _SAFE, _STOP),
    Signal.PROVEN: (_OK, _OK, _OK, _SAFE),
    Signal.GAP: (_OK, _DEG, _SAFE, _STOP),
    Signal.LATE: (_DEG, _DEG, _SAFE, _STOP),
    Signal.SUSPECT: (_SAFE, _SAFE, _SAFE, _STOP),
    Signal.LOST: (_SAFE, _SAFE, _SAFE, _STOP),
    Signal.IMPLAUSIBLE: (_SAFE, _SAFE, _SAFE, _STOP),
    Signal.GONE: (_STOP, _STOP, _STOP, _STOP),
    Signal.CRITICAL: (_STOP, _STOP, _STOP, _STOP),
}


def move(level: Level, signal: Signal) -> Level:
    return TABLE[signal][level]


@dataclass(frozen=True, slots=True)
class Limits:
    stop_c: Celsius  # critical − 5 K
    slew_k_per_s: float = 15.0
    power_change_w: Watts = Watts(0.5)  # a change that must show in a living sensor


@dataclass(frozen=True, slots=True)
class Trust:
    """State of one sensor. ``seen_s`` = last accepted reading; the median of ``window``
    is what the control law gets. ``power_low_w``..``power_high_w``: the power that explains why
    the value stands where it does; ``must_move``: it was wrong or frozen, so that standing still
    proves nothing."""

    seen_s: Seconds
    level: Level = Level.OK
    window: tuple[Celsius, ...] = ()
    median_c: Celsius | None = None
    odd: int = 0  # readings out of range in a row
    good_since_s: Seconds | None = None
    value_c: Celsius | None = None  # last raw value
    must_move: bool = False
    metered: bool = False
    power_mean_w: Watts | None = None  # over FROZEN_S
    power_low_w: Watts = Watts(0.0)
    power_high_w: Watts = Watts(0.0)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    now_s: Seconds
    temperature_c: Celsius | None
    fault: str = ""
    power_w: Watts = Watts(0.0)
    metered: bool = False  # else estimated from caps and load


def step(limits: Limits, trust: Trust, sample: Sample) -> Trust:
    """One reading: the new trust, with its level and, above OK, the reason."""
    trust, signal, reason = judge(limits, trust, sample)
    if signal is Signal.GOOD and _proven(limits, trust, sample.now_s):
        signal = Signal.PROVEN
    level = move(trust.level, signal)
    if level is Level.OK:
        reason = ""
    elif signal in (Signal.GOOD, Signal.PROVEN, Signal.GAP):
        reason = trust.reason
    return replace(trust, level=level, reason=reason)


def judge(limits: Limits, trust: Trust, sample: Sample) -> tuple[Trust, Signal, str]:
    """Plausibility of one reading."""
    value, now_s = sample.temperature_c, sample.now_s
    fault = sample.fault
    if value is not None and value in SENTINELS_C:
        value, fault = None, f"{value:g} °C means no data"
    if value is None:
        return _missing(trust, now_s, fault or "no reading")
    if not LOW_C <= value <= HIGH_C:
        trust = replace(trust, odd=trust.odd + 1, good_since_s=None)
        reason = f"{value:g} °C is outside {LOW_C:g}..{HIGH_C:g}"
        if trust.odd > 1 and now_s - trust.seen_s < GONE_S:  # one alone is a spike
            return replace(trust, must_move=True), Signal.IMPLAUSIBLE, reason
        return _missing(trust, now_s, reason)
    if now_s - trust.seen_s >= LOST_S:
        trust = replace(trust, window=())  # too old to be compared with
    window = (*trust.window, value)[-3:]
    middle = Celsius(median(window)) if len(window) != 2 else window[0]
    before_c, elapsed_s = trust.median_c, now_s - trust.seen_s
    trust = _accept(trust, sample, value, middle, window)
    if before_c is not None and elapsed_s > 0:
        jump_k = abs(middle - before_c)
        if jump_k > limits.slew_k_per_s * elapsed_s + COARSE_K:
            trust = replace(trust, good_since_s=None, must_move=True)
            return trust, Signal.IMPLAUSIBLE, f"{jump_k:.0f} K at once is faster than heat moves"
    if middle >= limits.stop_c:
        trust = replace(trust, good_since_s=None)
        return trust, Signal.CRITICAL, f"{middle:.1f} °C is within 5 K of the critical trip"
    if _frozen(limits, trust):
        trust = replace(trust, good_since_s=None, must_move=True)
        return trust, Signal.SUSPECT, f"frozen at {value:g} °C while the power changed"
    return trust, Signal.GOOD, ""


def _frozen(limits: Limits, trust: Trust) -> bool:
    """The mean power left the range in which a living sensor may stand still."""
    if trust.power_mean_w is None:
        return False
    above_w = trust.power_mean_w - trust.power_high_w
    below_w = trust.power_low_w - trust.power_mean_w
    return max(above_w, below_w) > limits.power_change_w


def _missing(trust: Trust, now_s: Seconds, fault: str) -> tuple[Trust, Signal, str]:
    age_s = now_s - trust.seen_s
    trust = replace(trust, good_since_s=None)
    for limit_s, signal in ((GONE_S, Signal.GONE), (LOST_S, Signal.LOST), (LATE_S, Signal.LATE)):
        if age_s >= limit_s - 1e-6:
            return trust, signal, f"no reading for {age_s:.0f} s ({fault})"
    return trust, Signal.GAP, f"no reading ({fault})"


def _accept(
    trust: Trust, sample: Sample, value: Celsius, middle: Celsius, window: tuple[Celsius, ...]
) -> Trust:
    moved = value != trust.value_c
    mean_w, low_w, high_w = _power(trust, sample, moved=moved)
    return replace(
        trust,
        seen_s=sample.now_s,
        window=window,
        median_c=middle,
        odd=0,
        good_since_s=sample.now_s if trust.good_since_s is None else trust.good_since_s,
        value_c=value,
        must_move=trust.must_move and not moved,
        metered=sample.metered,
        power_mean_w=mean_w,
        power_low_w=low_w,
        power_high_w=high_w,
    )


def _power(trust: Trust, sample: Sample, *, moved: bool) -> tuple[Watts, Watts, Watts]:
    """Mean, lowest and highest. Where the value moved, the power of now and that of late explain
    it; while it stands still the range closes in on the mean, as both cannot be true for long.
    A meter that comes or goes begins anew: it differs from the estimate."""
    if trust.power_mean_w is None or sample.metered is not trust.metered:
        return sample.power_w, sample.power_w, sample.power_w
    passed_s = max(0.0, sample.now_s - trust.seen_s)
    blend = -math.expm1(-passed_s / FROZEN_S)
    mean_w = trust.power_mean_w + blend * (sample.power_w - trust.power_mean_w)
    if moved:
        low_w, high_w = sorted((mean_w, float(sample.power_w)))
        return Watts(mean_w), Watts(low_w), Watts(high_w)
    low_w, high_w = trust.power_low_w, trust.power_high_w
    blend = -math.expm1(-passed_s / FORGET_S)
    high_w += blend * min(0.0, mean_w - high_w)
    low_w = min(high_w, low_w + blend * max(0.0, mean_w - low_w))
    return Watts(mean_w), Watts(low_w), Watts(high_w)


def _proven(limits: Limits, trust: Trust, now_s: Seconds) -> bool:
    if trust.good_since_s is None or trust.median_c is None:
        return False
    if trust.must_move and trust.level is not Level.STOP:  # nothing heats it there
        return False
    cool = trust.median_c <= limits.stop_c - Kelvin(RESTART_DISTANCE_K)
    return cool and now_s - trust.good_since_s >= RECOVER_S
