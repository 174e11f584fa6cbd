"""How a service with a wrong configuration waits for a right one."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.drivers import config_retry


@pytest.fixture(autouse=True)
def _mask() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.fixture
def main(tmp_path: Path) -> Path:
    file = tmp_path / "stoker.toml"
    file.write_text("[wrong")
    return file


class Waits:
    """A time that passes by itself: what each wait was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, stop: bool = False) -> None:
        self.now, self._stop = 0.0, stop
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def __call__(self, seconds: float) -> bool:
        self.now += seconds
        return self._stop

    def of(self, folder: Path, main: Path) -> float:
        began = self.now
        config_retry.wait(folder, main, stopped=self)
        return self.now - began


def test_the_first_failure_is_told_at_once_and_then_the_pause_grows(
    tmp_path: Path, main: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Waits(monkeypatch)
    assert [waits.of(tmp_path, main) for _ in range(8)] == [0, 1, 3, 7, 15, 31, 60, 60]


def test_other_files_begin_anew(
    tmp_path: Path, main: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Waits(monkeypatch)
    for _ in range(6):
        waits.of(tmp_path, main)
    main.write_text("[wrong again")
    assert waits.of(tmp_path, main) == 0


@pytest.mark.parametrize("name", ["stoker.toml", "stoker.d/50-right.toml"])
def test_a_changed_file_ends_the_wait(
    tmp_path: Path, main: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    waits = Waits(monkeypatch)
    (tmp_path / "stoker.d").mkdir()
    for _ in range(8):
        waits.of(tmp_path, main)

    def edit(seconds: float) -> bool:
        waits(seconds)
        (tmp_path / name).write_text("# right, and longer")
        return False

    began = waits.now
    config_retry.wait(tmp_path, main, stopped=edit)
    assert waits.now - began <= 1


def test_somebody_who_restarts_it_hears_at_once(
    tmp_path: Path, main: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Waits(monkeypatch)
    for _ in range(8):
        waits.of(tmp_path, main)
    assert Waits(monkeypatch, stop=True).of(tmp_path, main) <= 1
    assert Waits(monkeypatch).of(tmp_path, main) == 0


def test_sigterm_is_what_stops_it(tmp_path: Path, main: Path) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    signal.raise_signal(signal.SIGTERM)
    assert config_retry.stopped(5.0)


@pytest.mark.parametrize("text", ["", "x", "a\nb", "\n-5", "\0"])
def test_a_count_that_is_nonsense_counts_as_none(
    tmp_path: Path, main: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / config_retry.STATE).write_text(text)
    assert Waits(monkeypatch).of(tmp_path, main) == 0


def test_without_a_place_to_count_it_still_ends(
    tmp_path: Path, main: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Waits(monkeypatch).of(tmp_path / "missing", main) == 0
