"""A PC with a clock for each CPU: no tick costs more than a moment, with operating points too.

Costs are counted in calls of functions, which no slow machine changes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
from tests.fakes.thermal import HandClock, preset

from stoker.config.schema import ThermalConfig
from stoker.core import calibration, operating_points
from stoker.core.token_mix import Work
from stoker.drivers.cap_journal import FileCapJournal
from stoker.drivers.cpufreq import Cpufreq
from stoker.drivers.sysfs_thermal import SysfsThermal
from stoker.events.operating import Point, PointTable
from stoker.services.thermal import ThermalPorts, ThermalService

TICK_CALLS = 3_000
"""16 policies need 1,600. Comparing all pairs of their points would be 700,000."""
SHARE_CALLS = 2 * operating_points.MIX_POINTS**2


class Computer:
    def __init__(self, directory: Path, policies: int) -> None:
        root = directory / "sys"
        for cpu in range(policies):
            folder = root / f"devices/system/cpu/cpufreq/policy{cpu}"
            folder.mkdir(parents=True)
            files = {"cpuinfo_min_freq": 400_000, "related_cpus": cpu}
            files |= dict.fromkeys(("cpuinfo_max_freq", "scaling_max_freq"), 4_700_000)
            for name, value in files.items():
                (folder / name).write_text(f"{value}\n")
        zone = root / "class/thermal/thermal_zone0"
        zone.mkdir(parents=True)
        (zone / "type").write_text("x86_pkg_temp\n")
        (zone / "temp").write_text("60000\n")
        self.clock = HandClock()
        self.work = Work("decode", 1.0)
        self.threads = policies // 2
        self.service = ThermalService(
            ThermalConfig(),
            preset("x86-generic"),
            ThermalPorts(
                SysfsThermal(root),
                Cpufreq(root),
                FileCapJournal(directory / "caps.json"),
                self.clock,
                "this-boot",
            ),
            work=lambda: self.work,
        )
        self.service.tick()

    def table(self) -> PointTable:
        """Prefill grows with the clock, decoding hardly: both fronts are long."""
        plan = self.service.plan
        grid = calibration.grid(plan.board_ladder, plan.tables, self.threads)
        sizes = dict.fromkeys(plan.tables, 1)
        points = []
        for setting in grid:
            watts = calibration.estimate_w(
                plan.tables, sizes, setting, setting.threads, (plan.full_w, self.threads)
            )
            part = max(khz for _, khz in setting.caps) / 4.7e6
            power = 0.95 if setting.phase == "prefill" else 0.4
            points.append(Point(setting, watts, 50 * setting.threads * part**power))
        return PointTable(plan.board, "m", "f", self.threads, len(grid), points=tuple(points))

    def tick(self, read: int = 0, written: int = 0) -> int:
        """How many functions one tick calls."""
        now = self.work
        self.work = Work("decode", 1.0, now.tokens_read + read, now.tokens_written + written)
        self.clock.now_s += 0.25
        return calls(self.service.tick)


def calls(work: Callable[[], None]) -> int:
    count = 0

    def called(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("policies", [8, 16])
def test_a_tick_of_many_policies_stays_small(tmp_path: Path, policies: int) -> None:
    computer = Computer(tmp_path, policies)
    bare = max(computer.tick() for _ in range(20))
    computer.service.use_points(computer.table(), computer.threads)
    computer.tick()  # takes the table
    fronts = computer.service.plan.fronts
    assert fronts is not None
    assert min(len(fronts.prefill), len(fronts.decode)) > 200
    shares = [computer.tick(read, 100) for read in (100, 300, 900, 5000, 0, 20_000)]
    usual = max(computer.tick(10, 10) for _ in range(20))
    assert max(bare, usual) < TICK_CALLS
    assert max(shares) < TICK_CALLS + SHARE_CALLS


def test_the_pairs_of_few_shares_are_remembered(tmp_path: Path) -> None:
    computer = Computer(tmp_path, 8)
    computer.service.use_points(computer.table(), computer.threads)
    for read in range(0, 4000, 100):
        computer.tick(read, 500)
    kept = operating_points.rungs.cache_info()
    assert kept.maxsize is not None
    assert kept.maxsize * operating_points.MIX_POINTS**2 <= 5000
