"""The law ``step-table``: the rule first described for this product, kept for comparison.

Sensor minus wall, every 10 ms: 3 K above it 200 MHz less, 1 K below it 100 MHz more. It is
bang-bang with a dead band, and peaks about 3 K above the wall. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stoker.core.opp import PowerTable
from stoker.units import Kelvin, KiloHertz, Seconds

PERIOD_S: Final = Seconds(0.01)
ABOVE_K, BELOW_K = Kelvin(3.0), Kelvin(-1.0)
FALL_KHZ, RISE_KHZ = 200_000, 100_000


def step(
    tables: Mapping[str, PowerTable],
    limits_khz: Mapping[str, KiloHertz],
    above_k: float,
    *,
    may_rise: bool = True,
) -> dict[str, KiloHertz]:
    """The next limit of each policy, within its table; absent = it was at the top."""
    change = -FALL_KHZ if above_k >= ABOVE_K else 0
    if above_k <= BELOW_K and may_rise:
        change = RISE_KHZ
    after: dict[str, KiloHertz] = {}
    for name, table in tables.items():
        low, high = table.steps_khz[0], table.steps_khz[-1]
        after[name] = KiloHertz(min(max(limits_khz.get(name, high) + change, low), high))
    return after
