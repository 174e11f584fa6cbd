"""ports.runner on the packaged unit: a fake systemd on a private bus, real runners behind it."""

from __future__ import annotations

import getpass
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.conftest import Spawn

from stoker.drivers.runner_unit import UnitLauncher, UnitRunner
from stoker.drivers.systemd_units import SystemdUnits, UnitState
from stoker.errors import ModelUnavailable
from stoker.events.inference import RunnerExit
from stoker.events.runner import Event, Hello, Ping, Tokenize
from stoker.tour.private_bus import PrivateBus

pytestmark = pytest.mark.bus

LIMIT_S = 10.0
MakeLauncher = Callable[..., UnitLauncher]


@pytest.fixture
def make(tmp_path: Path, private_bus: PrivateBus, spawn: Spawn) -> MakeLauncher:
    """A launcher and its systemd; words are flags of the fake."""

    def build(*flags: str, user: str = "") -> UnitLauncher:
        spawn(
            "tests.fakes.systemd1", private_bus.address, "--sockets", str(tmp_path), *flags,
            ready="ready",
        )  # fmt: skip
        return UnitLauncher(
            "echo",
            runtime_dir=tmp_path,
            gomp_spincount=1234,
            systemd=SystemdUnits(private_bus.address),
            user=user or getpass.getuser(),
        )

    return build


def wait(fd: int, timeout_s: float = LIMIT_S) -> bool:
    return bool(select.select([fd], [], [], timeout_s)[0])


def first_events(runner: UnitRunner) -> list[Event]:
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        assert wait(runner.fileno())
        events = runner.receive()
        assert events is not None
        if events:
            return events
    raise AssertionError("no event")


def the_end(runner: UnitRunner) -> RunnerExit:
    """As the link does it: asks whenever the descriptor says so."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        assert wait(runner.exit_fileno())
        how = runner.exited()
        if how is not None:
            runner.close()
            runner.release()
            return how
    raise AssertionError("no end")


def test_the_first_word_is_hello_with_the_pid(make: MakeLauncher) -> None:
    runner = make().start()
    assert runner.exited() is None
    hello = first_events(runner)[0]
    assert isinstance(hello, Hello)
    assert hello.pid == runner.pid
    assert runner.receive() == []
    runner.signal(signal.SIGKILL)
    assert the_end(runner) == RunnerExit(signal=signal.SIGKILL)


def test_requests_before_the_runner_connects_arrive(make: MakeLauncher) -> None:
    runner = make().start()
    runner.send(Tokenize("q", "before hello"))
    assert not runner.flush()
    first_events(runner)
    assert runner.flush()
    runner.close()
    assert the_end(runner).status == 0


def test_a_large_request_goes_out_in_parts(make: MakeLauncher) -> None:
    runner = make().start()
    first_events(runner)
    runner.send(Tokenize("q", "word " * 400_000))
    end = time.monotonic() + LIMIT_S
    while not runner.flush():
        assert time.monotonic() < end
        assert wait(runner.fileno()), "room in the socket must wake the poller"
        assert runner.receive() is not None
    runner.close()
    assert the_end(runner).status == 0


def test_closing_the_link_ends_it_by_itself(make: MakeLauncher) -> None:
    runner = make().start()
    first_events(runner)
    runner.close()
    assert the_end(runner) == RunnerExit(status=0)
    runner.send(Ping(1))  # to a dead peer: no exception


def test_out_of_memory_is_what_systemd_says(make: MakeLauncher) -> None:
    runner = make("--oom").start()
    first_events(runner)
    os.kill(runner.pid, signal.SIGKILL)
    assert the_end(runner) == RunnerExit(signal=signal.SIGKILL, oom_killed=True)


def test_a_watchdog_is_told_to_the_journal(
    make: MakeLauncher, caplog: pytest.LogCaptureFixture
) -> None:
    runner = make("--watchdog").start()
    first_events(runner)
    os.kill(runner.pid, signal.SIGABRT)
    with caplog.at_level(logging.WARNING):
        assert the_end(runner).signal == signal.SIGABRT
    assert "watchdog" in caplog.text


def test_a_unit_that_cannot_be_executed_ends_without_ever_connecting(
    make: MakeLauncher,
) -> None:
    assert the_end(make("--broken").start()) == RunnerExit(status=203)


def test_a_refusal_by_polkit_is_no_crash_of_the_model_and_leaves_nothing(
    make: MakeLauncher, tmp_path: Path
) -> None:
    how = the_end(make("--deny").start())
    assert "Access denied" in how.unstarted
    assert "polkit" in how.unstarted
    assert [path.name for path in tmp_path.iterdir()] == ["generation"]


def test_what_a_stokerd_before_left_failed_is_forgotten(
    make: MakeLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped while its runner started: nobody else would ever clear that unit."""
    (tmp_path / "generation").write_text("7\n")
    cleared: list[str] = []
    monkeypatch.setattr(SystemdUnits, "reset_failed", lambda _, unit: cleared.append(unit))
    launcher = make("--deny")
    the_end(launcher.start())
    assert cleared == [f"stoker-runner@{number}.service" for number in (6, 7, 8)]
    cleared.clear()
    the_end(launcher.start())  # of our own life each watch clears its own
    assert cleared == ["stoker-runner@9.service"]


def test_without_systemd_a_start_says_so(tmp_path: Path, private_bus: PrivateBus) -> None:
    launcher = UnitLauncher(
        "echo", runtime_dir=tmp_path, gomp_spincount=1, user=getpass.getuser(),
        systemd=SystemdUnits(private_bus.address),
    )  # fmt: skip
    assert the_end(launcher.start()).unstarted.startswith("cannot start runner: ")


def test_a_systemd_that_does_not_answer_holds_nobody_up(
    make: MakeLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call may take seconds on a busy board; the inference loop has streams to serve."""
    launcher = make()
    started, asked = SystemdUnits.start, SystemdUnits.state

    def late_start(systemd: SystemdUnits, unit: str) -> None:
        time.sleep(0.5)
        started(systemd, unit)

    def late_state(systemd: SystemdUnits, unit: str) -> UnitState | None:
        time.sleep(0.3)
        return asked(systemd, unit)

    monkeypatch.setattr(SystemdUnits, "start", late_start)
    monkeypatch.setattr(SystemdUnits, "state", late_state)
    begin = time.monotonic()
    runner = launcher.start()
    runner.signal(signal.SIGTERM)
    assert runner.exited() is None
    assert time.monotonic() - begin < 0.25
    the_end(runner)


def test_what_threads_use_of_pygobject_is_there_before_they_start() -> None:
    """Seen on a slow machine: two threads were first to use GLib.VariantBuilder, and it stayed
    without methods. stokerd could not start."""
    look = (
        "import stoker.drivers.systemd_units, gi.module; "
        "from gi.repository import GLib, Gio; "
        "made = {**vars(GLib._introspection_module), **vars(Gio._introspection_module)}; "
        "assert {'VariantBuilder', 'VariantType', 'DBusConnection', 'DBusCallFlags'} <= set(made)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", look], check=True, env=environment)


def test_an_unknown_user_is_a_typed_error(make: MakeLauncher) -> None:
    with pytest.raises(ModelUnavailable, match="no-such-user"):
        make(user="no-such-user").start()


def test_another_user_at_the_socket_is_refused(
    make: MakeLauncher,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """We come as ourselves while another user is expected."""
    if os.geteuid():  # only root may give that user's group
        monkeypatch.setattr(os, "chown", lambda *_: None)
    runner = make("--broken", user="nobody").start()
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(tmp_path / "runner-1.sock"))
        assert wait(runner.fileno())
        with caplog.at_level(logging.WARNING):
            assert runner.receive() == []
        assert stranger.recv(1) == b""
    assert "refused" in caplog.text
    assert runner.pid == 0
    the_end(runner)


def test_generations_are_never_used_twice_and_files_go(make: MakeLauncher, tmp_path: Path) -> None:
    launcher = make()
    (tmp_path / "generation").write_text("41\n")
    for number in (42, 43):
        runner = launcher.start()
        settings = (tmp_path / f"runner-{number}.env").read_text()
        assert "GOMP_SPINCOUNT=1234" in settings
        first_events(runner)
        assert not (tmp_path / f"runner-{number}.sock").exists()
        runner.close()
        the_end(runner)
    assert [path.name for path in tmp_path.iterdir()] == ["generation"]


def test_the_socket_is_for_the_group_only(make: MakeLauncher, tmp_path: Path) -> None:
    runner = make("--broken").start()
    assert (tmp_path / "runner-1.sock").stat().st_mode & 0o777 == 0o660
    the_end(runner)


def test_a_second_runner_lives_beside_the_first(make: MakeLauncher) -> None:
    """A change of model needs both for a while."""
    launcher = make()
    first, second = launcher.start(), launcher.start()
    assert first_events(first)
    assert first_events(second)
    assert first.pid != second.pid
    first.close()
    assert the_end(first) == RunnerExit(status=0)
    assert second.exited() is None
    second.close()
    assert the_end(second) == RunnerExit(status=0)


def test_a_folder_of_libraries_is_named_to_the_unit_whatever_its_name(tmp_path: Path) -> None:
    from stoker.drivers.runner_unit import _libraries

    assert _libraries("") == ""
    line = _libraries('/var/lib/a "b" $c \\d `e`')
    assert line == 'STOKER_RUNNER_LIBRARIES="/var/lib/a \\"b\\" \\$c \\\\d \\`e\\`"\n'
    with pytest.raises(ModelUnavailable):
        _libraries(f"{tmp_path}\nLD_PRELOAD=/x")
