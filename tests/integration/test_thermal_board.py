"""The loop in its own thread and in real time, on a board simulated by another process."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.fakes.thermal import preset

from stoker.config.schema import ThermalConfig
from stoker.drivers.board_files import load_boards, read_board_facts
from stoker.drivers.cap_journal import FileCapJournal
from stoker.drivers.cpufreq import Cpufreq
from stoker.drivers.sysfs_thermal import SysfsThermal
from stoker.events.thermal import ThermalSnapshot
from stoker.ports.doors import ThermalListener
from stoker.services.thermal import ThermalPorts, ThermalService, restore_caps
from stoker.units import Seconds


class WallClock:
    def monotonic_s(self) -> Seconds:
        return Seconds(time.monotonic())


@pytest.fixture
def tree(tmp_path: Path, child_env: dict[str, str]) -> Iterator[Path]:
    root = tmp_path / "sys"
    command = [sys.executable, "-m", "bench.simulated_board", "pi5-bare", "--root", str(root)]
    command += ["--warm", "78.3", "--duration", "60"]
    child = subprocess.Popen(command, env=child_env, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert str(root) in child.stdout.readline()
        yield root
    finally:
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=10) == 0


def ports_of(tree: Path) -> ThermalPorts:
    journal = FileCapJournal(tree.parent / "run" / "caps.json")
    return ThermalPorts(SysfsThermal(tree), Cpufreq(tree), journal, WallClock(), "boot")


def limit_khz(tree: Path) -> int:
    return int((tree / "devices/system/cpu/cpufreq/policy0/scaling_max_freq").read_text() or 0)


def wait(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def test_a_hot_board_is_capped_listeners_hear_it_and_stop_restores(tree: Path) -> None:
    assert read_board_facts(tree).compatible[0] == "raspberrypi,5-model-b"
    heard: list[ThermalSnapshot] = []
    capped = threading.Event()

    def changed(snapshot: ThermalSnapshot) -> None:
        heard.append(snapshot)
        if snapshot.cap_khz:
            capped.set()

    service = ThermalService(ThermalConfig(), preset("raspberrypi-5"), ports_of(tree))
    service.listen(ThermalListener(changed))
    service.start()
    try:
        assert capped.wait(20), f"never capped: {service.snapshot()}"
        wait(lambda: limit_khz(tree) < 2_400_000)
        assert service.details().sensors[0][0].name == "cpu-thermal"
        before = service.last_tick_s()
        wait(lambda: service.last_tick_s() != before)
    finally:
        service.stop()
    assert limit_khz(tree) == 2_400_000
    assert not any(thread.name == "thermal" for thread in threading.enumerate())


def test_what_a_killed_loop_left_is_restored_by_another_process(tree: Path) -> None:
    service = ThermalService(ThermalConfig(), preset("raspberrypi-5"), ports_of(tree))
    service.start()
    wait(lambda: bool(service.snapshot().cap_khz))
    service._pace.stop()  # as if killed: nothing is given back
    assert limit_khz(tree) < 2_400_000
    assert [r.outcome for r in restore_caps(ports_of(tree))] == ["restored"]
    assert limit_khz(tree) == 2_400_000


def test_presets_load_from_the_repository(root: Path) -> None:
    assert len(load_boards(root / "policies" / "boards")) >= 6
