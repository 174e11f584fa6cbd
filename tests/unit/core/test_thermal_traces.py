"""Published temperature traces of real boards raise no false alarm in the filters."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.core.failsafe import Level, Limits, Sample, Trust, step
from stoker.core.pid import PidGains, PidInput, start
from stoker.core.pid import step as pid_step
from stoker.units import Celsius, Seconds, Watts

TRACES = Path(__file__).resolve().parents[4] / "shared" / "vectors" / "thermal"
GAINS = PidGains(gain_w_per_k=0.08, power_min_w=Watts(0.3), power_max_w=Watts(3.0))


def rows(path: Path) -> list[tuple[float, float]]:
    """(seconds, °C): the first column and the one named temp_C."""
    header: list[str] = []
    found: list[tuple[float, float]] = []
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            header = line.lstrip("# ").split(",")
            continue
        cells = line.split(",")
        found.append((float(cells[0]), float(cells[header.index("temp_C")])))
    return found


@pytest.mark.skipif(not TRACES.is_dir(), reason="the published traces are not beside the checkout")
def test_published_traces_are_plausible_and_give_finite_budgets() -> None:
    paths = sorted(TRACES.glob("*.csv"))
    assert paths, "the directory of traces is empty"
    for path in paths:
        trace = rows(path)
        assert len(trace) > 10
        trust, power = Trust(seen_s=Seconds(trace[0][0])), start(GAINS)
        for (at, value), (after, following) in zip(trace, trace[1:], strict=False):  # noqa: RUF007
            # Between two samples the curve is drawn as a line, read every 250 ms.
            count = max(1, round((after - at) / 0.25))
            for number in range(count):
                part = number / count
                here = Celsius(value + part * (following - value))
                now = Seconds(at + part * (after - at))
                trust = step(Limits(Celsius(105)), trust, Sample(now, here, power_w=Watts(2.0)))
                assert trust.level is Level.OK, f"{path.name} at {now:.0f} s: {trust.reason}"
                assert trust.median_c is not None
                sample = PidInput(trust.median_c, Celsius(78.5), Seconds(0.25), Watts(9))
                power, budget = pid_step(GAINS, power, sample)
                assert GAINS.power_min_w <= budget <= GAINS.power_max_w
