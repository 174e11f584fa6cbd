"""A token bucket: how fast bytes may come. Pure; seconds of any one clock that never goes back."""

from __future__ import annotations

from dataclasses import replace

from stoker_ota.values.pace import Pace


def begin(rate: int, now_s: float, *, least_burst: int) -> Pace:
    """A full bucket that holds a quarter of a second, at least ``least_burst`` bytes."""
    burst = max(rate // 4, least_burst)
    return Pace(rate, burst, float(burst), now_s)


def take(pace: Pace, count: int, now_s: float) -> Pace:
    """``count`` bytes come."""
    filled = _filled(pace, now_s)
    return replace(filled, tokens=filled.tokens - count) if pace.rate else filled


def wait_s(pace: Pace, now_s: float) -> float:
    """Until the next bytes may be asked for; 0 = now."""
    if not pace.rate:
        return 0.0
    return max(0.0, -_filled(pace, now_s).tokens / pace.rate)


def _filled(pace: Pace, now_s: float) -> Pace:
    since = max(0.0, now_s - pace.at_s)
    tokens = min(float(pace.burst), pace.tokens + since * pace.rate)
    return replace(pace, tokens=tokens, at_s=max(now_s, pace.at_s))
