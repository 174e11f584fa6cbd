"""One contract per port, run on the real driver and on the fake: clock and notifier."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.system import FakeClock, RecordingNotifier

from stoker.drivers.clock import MonotonicClock
from stoker.drivers.notify import SystemdNotifier
from stoker.ports.system import Clock, Notifier


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """systemd's end of the notify socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(tmp_path / "notify"))
        server.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield server


@pytest.mark.parametrize("clock", [MonotonicClock(), FakeClock()])
def test_a_clock_never_goes_back(clock: Clock) -> None:
    times = [clock.monotonic_s() for _ in range(100)]
    assert times == sorted(times)
    assert times[0] > 0


def test_the_clock_does_not_count_the_time_a_device_sleeps() -> None:
    before = time.clock_gettime(time.CLOCK_MONOTONIC)
    now = MonotonicClock().monotonic_s()
    assert before <= now <= time.clock_gettime(time.CLOCK_MONOTONIC)


def _quiet() -> Notifier:
    return SystemdNotifier({})


@pytest.mark.parametrize("make", [_quiet, RecordingNotifier])
def test_a_notifier_nobody_listens_to_takes_every_call(make: type[Notifier]) -> None:
    notifier = make()
    for call in (notifier.ready, notifier.watchdog, notifier.reloading, notifier.stopping):
        call()
    notifier.status("fine")
    assert notifier.watchdog_interval_s() == 0.0


def test_systemd_hears_each_word(manager: socket.socket) -> None:
    notifier = SystemdNotifier()
    for call in (notifier.ready, notifier.watchdog, notifier.stopping):
        call()
    heard = [manager.recv(1024) for _ in range(3)]
    assert heard == [b"READY=1", b"WATCHDOG=1", b"STOPPING=1"]


def test_a_status_cannot_smuggle_in_another_assignment(manager: socket.socket) -> None:
    SystemdNotifier().status("loading\nREADY=1\n" + "x" * 5000)
    heard = manager.recv(8192)
    assert heard.startswith(b"STATUS=loading READY=1 x")
    assert b"\n" not in heard
    assert len(heard) < 500


def test_reloading_carries_the_monotonic_time_that_systemd_pairs_it_by(
    manager: socket.socket,
) -> None:
    SystemdNotifier().reloading()
    first, second = manager.recv(1024).decode().splitlines()
    assert first == "RELOADING=1"
    stamp_s = int(second.removeprefix("MONOTONIC_USEC=")) / 1e6
    assert abs(time.monotonic() - stamp_s) < 5


def test_a_manager_that_went_away_is_no_reason_to_die(manager: socket.socket) -> None:
    notifier = SystemdNotifier()
    manager.close()
    notifier.watchdog()


@pytest.mark.parametrize(
    ("environ", "interval_s"),
    [
        ({"WATCHDOG_USEC": "10000000"}, 5.0),
        ({"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": str(os.getpid())}, 5.0),
        ({"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
        ({"WATCHDOG_USEC": "-4"}, 0.0),
    ],
)
def test_the_watchdog_is_fed_at_half_its_time(environ: dict[str, str], interval_s: float) -> None:
    assert SystemdNotifier(environ).watchdog_interval_s() == interval_s
