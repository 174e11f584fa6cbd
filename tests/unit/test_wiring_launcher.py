"""Which way the runner is started."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stoker import placement_parts, wiring
from stoker.config.schema import Config
from stoker.core.cpu_choice import Cpu
from stoker.drivers import runner_unit
from stoker.drivers.cpus import usable_cpus
from stoker.drivers.runner_child import ChildLauncher
from stoker.ports.doors import CpuShare


def _launcher(
    monkeypatch: pytest.MonkeyPatch, setting: str, *, service: bool, installed: bool, bus: str
) -> object:
    monkeypatch.setattr(runner_unit, "installed", lambda: installed)
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if service:
        monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    base = Config()
    config = replace(
        base,
        runner=replace(base.runner, launcher=setting),
        daemon=replace(base.daemon, bus=bus),
    )
    return wiring.runner_launcher(config)


@pytest.mark.parametrize(
    ("setting", "service", "installed", "bus", "unit"),
    [
        ("auto", True, True, "system", True),
        ("auto", False, True, "system", False),  # started by hand: nobody gave us a user
        ("auto", True, False, "system", False),
        ("auto", True, True, "session", False),  # a service of a person's own manager
        ("child", True, True, "system", False),
        ("systemd", False, False, "system", True),  # somebody knows better
    ],
)
def test_units_are_used_where_stokerd_is_the_packaged_service(
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
    service: bool,
    installed: bool,
    bus: str,
    unit: bool,
) -> None:
    launcher = _launcher(monkeypatch, setting, service=service, installed=installed, bus=bus)
    wanted = runner_unit.UnitLauncher if unit else ChildLauncher
    assert isinstance(launcher, wanted)


PARTITION = CpuShare("partition", "2-3,5")
BIG = [Cpu(n, 400 if n < 4 else 1024) for n in range(8)]
ALIKE = [Cpu(n, 1024) for n in range(8)]
TWO = ("--pin", "set", "--cpus", "1,2", "--nice=-10")
MASK = ("--pin", "set", "--cpus", "4,5,6,7", "--nice=-10")


@pytest.fixture(autouse=True)
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(8)))


def placing(share: CpuShare, cpus: list[Cpu] = ALIKE, **runner: object) -> placement_parts.Placing:
    base = replace(Config().runner, launcher="systemd")
    config = replace(Config(), runner=replace(base, **runner))  # type: ignore[arg-type]
    return placement_parts.placing(config, lambda: share, lambda: cpus)


@pytest.mark.parametrize(
    ("launcher", "share", "words"),
    [
        ("systemd", PARTITION, ("--pin", "one-to-one", "--fifo", "5")),
        ("systemd", CpuShare("cpuset", "2-3", "refused"), ("--pin", "off")),
        ("child", PARTITION, ("--pin", "off")),  # the partition is not the child's
    ],
)
def test_fifo_needs_a_partition_and_says_so(
    launcher: str, share: CpuShare, words: tuple[str, ...]
) -> None:
    placed = placing(share, launcher=launcher, realtime="fifo")
    assert placed.options == words
    assert ("no partition" in placed.no_fifo) == ("--fifo" not in words)


def test_fifo_that_is_not_used_is_told_to_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runner = replace(Config().runner, launcher="child", realtime="fifo")
    wiring.runner_launcher(replace(Config(), runner=runner))
    assert "no partition" in caplog.text


@pytest.mark.parametrize(
    ("share", "cpus", "runner", "options", "why"),
    [
        (CpuShare(), BIG, {}, MASK, ""),
        (CpuShare("none", "", "no cpuset"), BIG, {"launcher": "child"}, MASK, ""),
        (CpuShare(), BIG, {"nice": 0}, (*MASK[:-1], "--nice=0"), ""),
        (CpuShare(), BIG, {"threads": 4}, MASK, ""),
        (CpuShare(), BIG, {"threads": 6}, ("--pin", "off"), "6 threads are configured"),
        (CpuShare(), BIG, {"threads_batch": 6}, ("--pin", "off"), "6 threads are configured"),
        (CpuShare(), BIG, {"threads": 6, "pin": "set"}, MASK, ""),
        (CpuShare(), BIG, {"pin": "off"}, ("--pin", "off"), "runner.pin is off"),
        (CpuShare(), BIG, {"pin": "one-to-one"}, ("--pin", "one-to-one"), "pin is one-to-one"),
        (CpuShare(), ALIKE, {}, ("--pin", "off"), "alike"),
        (CpuShare(), ALIKE[:2], {}, ("--pin", "off"), "alike"),
        (CpuShare(), ALIKE[:1], {"pin": "set"}, ("--pin", "off"), "no CPU to spare"),
        (CpuShare(), ALIKE[:3], {"pin": "set"}, TWO, ""),
        (CpuShare("cpuset", "4-7"), BIG, {}, ("--pin", "off"), ""),
        (PARTITION, BIG, {"pin": "set"}, ("--pin", "off"), ""),
        (PARTITION, BIG, {}, ("--pin", "one-to-one"), ""),
    ],
)  # fmt: skip
def test_masks_are_for_fast_cpus_without_a_cpuset(
    share: CpuShare, cpus: list[Cpu], runner: dict[str, object], options: tuple[str, ...], why: str
) -> None:
    placed = placing(share, cpus, **runner)
    assert placed.options == options
    assert why in placed.unheld
    assert bool(why) == bool(placed.unheld)


def test_a_mask_holds_only_cpus_that_stokerd_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1, 2, 3, 6, 7})
    assert placing(CpuShare(), BIG).options[:4] == ("--pin", "set", "--cpus", "6,7")
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {4, 5, 6, 7})
    assert "alike" in placing(CpuShare(), BIG).unheld


def test_a_shared_cpuset_without_load_balancing_needs_pinned_threads() -> None:
    cpus = [Cpu(n, 1024, isolated=n > 1) for n in range(4)]
    assert placing(CpuShare("cpuset", "2-3", "refused"), cpus).options == ("--pin", "one-to-one")


def test_the_runner_has_as_many_threads_as_cpus_of_its_own() -> None:
    assert placing(PARTITION).threads == 3
    assert placing(CpuShare()).threads == usable_cpus()
    assert placing(PARTITION, threads=7).threads == 7
    assert placing(CpuShare(), BIG).threads == min(4, usable_cpus())
