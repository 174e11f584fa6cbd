"""Which way the runner is started."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stoker import wiring
from stoker.config.schema import Config
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


@pytest.mark.parametrize(
    ("launcher", "share", "words"),
    [
        ("systemd", PARTITION, ("--pin", "one-to-one", "--fifo", "5")),
        ("systemd", CpuShare("cpuset", "2-3", "refused"), ("--pin", "off")),
        ("child", PARTITION, ("--pin", "off")),  # the partition is not the child's
    ],
)
def test_fifo_needs_a_partition_and_says_so(
    launcher: str, share: CpuShare, words: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    runner = replace(Config().runner, launcher=launcher, realtime="fifo")
    config = replace(Config(), runner=runner)
    assert wiring.placing(config, lambda: share) == words
    assert ("no partition" in caplog.text) == ("--fifo" not in words)


def test_the_runner_has_as_many_threads_as_cpus_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    config = replace(Config(), runner=replace(Config().runner, launcher="systemd"))
    assert wiring.runner_threads(config, lambda: PARTITION) == 3
    assert wiring.runner_threads(config, CpuShare) == usable_cpus()
    seven = replace(config, runner=replace(config.runner, threads=7))
    assert wiring.runner_threads(seven, lambda: PARTITION) == 7
