"""Governors and devfreq limits: journaled before the write, given back, never fought over."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.fakes.thermal import FaultyFiles

from stoker.config.schema import ThermalConfig
from stoker.drivers.state_file import JsonStateFile
from stoker.drivers.text_files import SysfsText
from stoker.events.thermal import ThermalSnapshot
from stoker.services.held_files import HeldFiles
from stoker.services.other_knobs import OtherKnobs
from stoker.units import Celsius, Fraction

GPU = "class/devfreq/fb000000.gpu"
GOVERNOR = "devices/system/cpu/cpufreq/policy0/scaling_governor"
CONFIG = ThermalConfig(governor="performance", devfreq=("fb000000.gpu",))


class Knobs:
    def __init__(self, root: Path, config: ThermalConfig = CONFIG) -> None:
        self.root, self.files, self.journal = root / "sys", FaultyFiles(), root / "held.json"
        for name, text in (
            (GOVERNOR, "schedutil"),
            (GOVERNOR.replace("_governor", "_available_governors"), "performance schedutil"),
            (f"{GPU}/max_freq", "800000000"),
            (f"{GPU}/available_frequencies", "300000000 600000000 800000000"),
        ):
            path = self.root / name
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"{text}\n")
        files = SysfsText(self.root, self.files.read, self.files.write)
        self.time_s = 0.0
        self.held = HeldFiles(files, JsonStateFile(self.journal), "boot", lambda _s: None)
        self.knobs = OtherKnobs(config, self.held, lambda: self.time_s)

    def say(self, name: str) -> str:
        return (self.root / name).read_text().strip()

    def now(self, phase: str = "", headroom: float = 1.0, state: str = "ok") -> None:
        self.knobs.changed(
            ThermalSnapshot(
                state, Celsius(60.0), Celsius(80.0), Fraction(headroom), "x", phase=phase
            )
        )


@pytest.fixture
def knobs(tmp_path: Path) -> Knobs:
    return Knobs(tmp_path)


def test_the_governor_is_performance_while_anything_is_computed(knobs: Knobs) -> None:
    knobs.now()
    assert knobs.say(GOVERNOR) == "schedutil"
    for phase in ("prefill", "decode", "decode"):
        knobs.now(phase)
        assert knobs.say(GOVERNOR) == "performance"
    assert len(knobs.files.writes) == 1
    knobs.now()
    assert knobs.say(GOVERNOR) == "schedutil"
    knobs.now("decode")
    knobs.now("decode", state="safe")
    assert knobs.say(GOVERNOR) == "schedutil"


def test_devfreq_is_limited_with_the_headroom_and_let_go_with_it(knobs: Knobs) -> None:
    said = []
    for headroom in (1.0, 0.9, 0.8, 0.5, 0.1, 0.99):
        knobs.now(headroom=headroom)
        said.append(int(knobs.say(f"{GPU}/max_freq")) // 1_000_000)
    assert said == [800, 600, 600, 300, 300, 800]
    assert len(knobs.files.writes) == 3


def test_by_default_neither_is_touched(tmp_path: Path) -> None:
    knobs = Knobs(tmp_path, ThermalConfig())
    knobs.now("decode", 0.2)
    assert knobs.files.writes == []
    assert not knobs.journal.exists()


def test_the_journal_is_there_before_the_first_write(
    knobs: Knobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    write = knobs.files.write

    def watch(path: Path, text: str) -> None:
        seen.append(knobs.journal.read_text())
        write(path, text)

    monkeypatch.setattr(knobs.held.files, "_write", watch)
    knobs.now("decode")
    assert "schedutil" in seen[0]
    assert "performance" in seen[0]


def test_what_a_killed_one_left_is_given_back_unless_it_is_somebody_elses(tmp_path: Path) -> None:
    killed = Knobs(tmp_path)
    killed.now("decode", 0.5)
    (killed.root / f"{GPU}/max_freq").write_text("600000000\n")  # another program, since
    fresh = Knobs(tmp_path)
    assert len(fresh.held.restore()) == 2
    assert fresh.say(GOVERNOR) == "schedutil"
    assert fresh.say(f"{GPU}/max_freq") == "600000000"
    assert fresh.held.restore() == ()


def test_a_journal_of_another_boot_or_with_strange_paths_writes_nothing(tmp_path: Path) -> None:
    killed = Knobs(tmp_path)
    killed.now("decode")
    text = killed.journal.read_text()
    for strange in (
        text.replace('"boot"', '"other"'),
        text.replace("policy0/scaling_governor", "../../../../etc/passwd"),
        "[]",
    ):
        killed.journal.write_text(strange)
        fresh = Knobs(tmp_path)
        fresh.held.restore()
        assert fresh.files.writes == []


def test_stop_gives_everything_back(knobs: Knobs) -> None:
    knobs.now("decode", 0.5)
    knobs.knobs.stop()
    assert knobs.say(GOVERNOR) == "schedutil"
    assert knobs.say(f"{GPU}/max_freq") == "800000000"


def test_another_writer_is_told_once_and_left_alone(
    knobs: Knobs, caplog: pytest.LogCaptureFixture
) -> None:
    knobs.now(headroom=0.5)
    (knobs.root / f"{GPU}/max_freq").write_text("700000000\n")
    for headroom in (0.8, 0.5, 0.8):
        knobs.now(headroom=headroom)
    assert knobs.say(f"{GPU}/max_freq") == "700000000"
    assert len([r for r in caplog.records if "another program" in r.message]) == 1


def test_a_missing_right_names_the_file_and_who_grants_it(
    knobs: Knobs, caplog: pytest.LogCaptureFixture
) -> None:
    knobs.files.faults["write:scaling_governor"] = errno.EACCES
    knobs.now("decode")
    assert knobs.say(GOVERNOR) == "schedutil"
    told = "\n".join(record.message for record in caplog.records)
    assert GOVERNOR in told
    assert "EACCES" in told
    assert "libexec/stoker/grant" in told


@pytest.mark.parametrize("fault", ["write:scaling_governor", "scaling_governor"])
def test_what_cannot_be_given_back_now_is_given_back_by_the_next_start(
    tmp_path: Path, fault: str
) -> None:
    """A policy whose CPUs are offline answers EBUSY; the kernel keeps what we wrote."""
    killed = Knobs(tmp_path)
    killed.now("decode")
    killed.files.faults[fault] = errno.EBUSY
    killed.knobs.stop()
    assert killed.held.left() == (GOVERNOR,)
    fresh = Knobs(tmp_path)
    fresh.files.faults[fault] = errno.EBUSY
    fresh.held.restore()
    fresh.files.faults.clear()
    fresh = Knobs(tmp_path)
    fresh.held.restore()
    assert fresh.say(GOVERNOR) == "schedutil"
    assert fresh.held.left() == ()


def test_a_refused_release_is_tried_again_by_and_by(knobs: Knobs) -> None:
    knobs.now("decode")
    knobs.files.faults["write:scaling_governor"] = errno.EIO
    knobs.now()
    knobs.files.faults.clear()
    knobs.now()
    assert knobs.say(GOVERNOR) == "performance"
    knobs.time_s = 5.0
    knobs.now()
    assert knobs.say(GOVERNOR) == "schedutil"


def test_a_refused_governor_is_tried_again_in_the_same_phase(knobs: Knobs) -> None:
    knobs.files.faults["write:scaling_governor"] = errno.EBUSY
    knobs.now("decode")
    knobs.files.faults.clear()
    knobs.now("decode")
    assert knobs.say(GOVERNOR) == "schedutil"
    knobs.time_s = 5.0
    knobs.now("decode")
    assert knobs.say(GOVERNOR) == "performance"


def test_a_policy_that_comes_later_is_governed_too(knobs: Knobs) -> None:
    knobs.now("decode")
    later = knobs.root / GOVERNOR.replace("policy0", "policy4")
    later.parent.mkdir()
    later.write_text("ondemand\n")
    knobs.now("decode")
    assert later.read_text() == "performance\n"
    knobs.now()
    assert later.read_text() == "ondemand\n"


def test_a_refused_step_leaves_the_one_before_known(tmp_path: Path) -> None:
    knobs = Knobs(tmp_path)
    knobs.now(headroom=0.8)
    knobs.files.faults["write:max_freq"] = errno.EIO
    knobs.now(headroom=0.5)
    knobs.files.faults.clear()
    fresh = Knobs(tmp_path)
    fresh.held.restore()
    assert fresh.say(f"{GPU}/max_freq") == "800000000"


def test_a_kill_between_journal_and_write_loses_nothing(tmp_path: Path) -> None:
    killed = Knobs(tmp_path)
    killed.now(headroom=0.8)
    killed.held.files._write = None  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        killed.now(headroom=0.5)
    fresh = Knobs(tmp_path)
    fresh.held.restore()
    assert fresh.say(f"{GPU}/max_freq") == "800000000"


def test_a_journal_that_is_full_for_a_while_does_not_end_the_holding(
    knobs: Knobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_state: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patched:
        patched.setattr(knobs.held._journal, "save", full)
        knobs.now(headroom=0.5)
    assert knobs.say(f"{GPU}/max_freq") == "800000000"
    knobs.time_s = 5.0
    knobs.now(headroom=0.5)
    assert knobs.say(f"{GPU}/max_freq") == "300000000"


@pytest.mark.parametrize("limit", [600_000_000, 200_000_000])
def test_another_limit_of_a_device_never_gets_into_its_slot(knobs: Knobs, limit: int) -> None:
    """max_freq of devfreq, too, reads as the lowest of all requests."""
    knobs.files.limits["max_freq"] = limit
    knobs.now(headroom=0.4)
    assert knobs.say(f"{GPU}/max_freq") == "300000000"
    knobs.now(headroom=1.0)
    assert knobs.say(f"{GPU}/max_freq") == "800000000"
    assert knobs.held.left() == ()


def test_the_owners_limit_of_a_device_goes_back(knobs: Knobs) -> None:
    (knobs.root / f"{GPU}/max_freq").write_text("600000000\n")
    knobs.now(headroom=0.4)
    assert knobs.say(f"{GPU}/max_freq") == "300000000"
    knobs.now(headroom=1.0)
    assert knobs.say(f"{GPU}/max_freq") == "600000000"
