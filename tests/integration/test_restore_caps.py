"""``stokerd --restore-caps``: what systemd runs after a crash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stoker.drivers.cap_journal import FileCapJournal, read_boot_id
from stoker.events.thermal import CapRecord
from stoker.main import entry
from stoker.units import KiloHertz


def _board(root: Path, cap: int) -> Path:
    policy = root / "devices/system/cpu/cpufreq/policy0"
    policy.mkdir(parents=True)
    for name, value in {
        "cpuinfo_min_freq": "600000", "cpuinfo_max_freq": "1500000", "related_cpus": "0 1 2 3",
        "scaling_available_frequencies": "600000 1000000 1500000",
        "scaling_max_freq": str(cap),
    }.items():  # fmt: skip
        (policy / name).write_text(value + "\n")
    return policy / "scaling_max_freq"


def _run(tmp_path: Path, settings: str = "") -> int:
    config = tmp_path / "stoker.toml"
    config.write_text(settings)
    words = ["--restore-caps", "--config", str(config)]
    return entry([*words, "--sysfs-root", str(tmp_path / "sys"), "--runtime-dir", str(tmp_path)])


@pytest.mark.parametrize("settings", ["", "[thermal\nnonsense", "[thermal]\nno_such_key = 1"])
def test_a_cap_that_a_killed_daemon_left_is_undone(tmp_path: Path, settings: str) -> None:
    """A wrong configuration too must not leave a device slow."""
    cap = _board(tmp_path / "sys", 1_000_000)
    journal = FileCapJournal(tmp_path / "caps.json")
    record = CapRecord("policy0", KiloHertz(1_500_000), KiloHertz(1_000_000), read_boot_id())
    journal.write([record])
    assert _run(tmp_path, settings) == 0
    assert cap.read_text().strip() == "1500000"
    assert journal.load() == ()


def test_without_a_journal_nothing_is_touched(tmp_path: Path) -> None:
    cap = _board(tmp_path / "sys", 1_000_000)
    assert _run(tmp_path) == 0
    assert cap.read_text().strip() == "1000000"


def test_it_starts_without_the_bus_and_all_that_hangs_on_it() -> None:
    """ExecStopPost has a deadline, and a hot board that lost its daemon is slow enough."""
    code = (
        "import sys, stoker.main as main\n"
        "main.entry(['--restore-caps', '--runtime-dir', '/nonexistent'])\n"
        "print(sorted({'gi', 'pydbus', 'psutil', 'sqlite3'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_caps_are_given_back_whatever_becomes_of_the_other_knobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cap = _board(tmp_path / "sys", 1_000_000)
    record = CapRecord("policy0", KiloHertz(1_500_000), KiloHertz(1_000_000), read_boot_id())
    FileCapJournal(tmp_path / "caps.json").write([record])

    def broken(_files: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("stoker.services.held_files.HeldFiles.restore", broken)
    assert _run(tmp_path) == 1
    assert cap.read_text().strip() == "1500000"
