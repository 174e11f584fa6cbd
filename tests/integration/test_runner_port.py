"""ports.runner on the fake and on the real child: the same manners."""

from __future__ import annotations

import select
import signal
import sys
import time
from collections.abc import Callable

import pytest
from tests.fakes.runner import FakeLauncher

from stoker.core import frames
from stoker.drivers.runner_child import ChildLauncher
from stoker.errors import ModelUnavailable
from stoker.events.runner import Event, Hello, Ping
from stoker.ports.runner import RunnerProcess


def wait(fd: int, timeout_s: float = 10.0) -> bool:
    return bool(select.select([fd], [], [], timeout_s)[0])


def fake() -> RunnerProcess:
    runner = FakeLauncher().start()
    runner.greet()
    return runner


def child() -> RunnerProcess:
    return ChildLauncher("echo", gomp_spincount=1000).start()


def die(runner: RunnerProcess) -> None:
    from tests.fakes.runner import FakeRunner

    if isinstance(runner, FakeRunner):
        runner.die(signal=signal.SIGKILL)
    else:
        runner.signal(signal.SIGKILL)


both = pytest.mark.parametrize("make", [fake, child])
Make = Callable[[], RunnerProcess]


def first_events(runner: RunnerProcess) -> list[Event]:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        assert wait(runner.fileno())
        events = runner.receive()
        assert events is not None
        if events:
            return events
    raise AssertionError("no event")


@both
def test_the_first_word_is_hello_with_the_pid(make: Make) -> None:
    runner = make()
    hello = first_events(runner)[0]
    assert isinstance(hello, Hello)
    assert hello.pid == runner.pid
    die(runner)
    assert wait(runner.exit_fileno())
    runner.close()
    runner.release()


@both
def test_nothing_to_read_is_an_empty_list_not_a_wait(make: Make) -> None:
    runner = make()
    first_events(runner)
    began = time.monotonic()
    assert runner.receive() == []
    assert time.monotonic() - began < 0.5
    die(runner)
    assert wait(runner.exit_fileno())
    runner.close()
    runner.release()


@both
def test_a_killed_runner_is_known_by_its_signal(make: Make) -> None:
    runner = make()
    first_events(runner)
    assert runner.exited() is None
    die(runner)
    assert wait(runner.exit_fileno())
    how = runner.exited()
    assert how is not None
    assert (how.signal, how.oom_killed) == (signal.SIGKILL, False)
    runner.send(Ping(1))  # to a dead peer: no exception
    runner.close()
    runner.release()


def test_closing_the_link_ends_the_child_by_itself() -> None:
    runner = child()
    first_events(runner)
    runner.close()
    assert wait(runner.exit_fileno())
    how = runner.exited()
    assert how is not None
    assert how.status == 0
    runner.release()


def test_a_broken_frame_is_the_end_of_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = child()
    first_events(runner)
    monkeypatch.setattr(frames, "VERSION", 99)
    runner.send(Ping(1))
    monkeypatch.undo()
    assert wait(runner.exit_fileno())
    how = runner.exited()
    assert how is not None
    assert how.status == 76  # EX_PROTOCOL
    runner.close()
    runner.release()


def test_a_runner_that_cannot_be_executed_is_a_typed_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(ModelUnavailable, match="cannot start runner"):
        ChildLauncher("echo", gomp_spincount=1000).start()


def test_a_large_request_goes_out_in_parts_and_arrives_whole() -> None:
    from stoker.events.runner import Tokenize

    runner = child()
    first_events(runner)
    runner.send(Tokenize("q", "word " * 400_000))
    end = time.monotonic() + 20
    while not runner.flush():
        assert time.monotonic() < end
        time.sleep(0.001)
    assert wait(runner.fileno())
    runner.close()
    assert wait(runner.exit_fileno())
    runner.release()


def test_the_runners_environment_bounds_libgomps_spin_before_it_loads() -> None:
    import psutil

    runner = ChildLauncher("echo", gomp_spincount=1234).start()
    first_events(runner)
    environment = psutil.Process(runner.pid).environ()
    assert environment["GOMP_SPINCOUNT"] == "1234"
    assert environment["GGML_NO_BACKTRACE"] == "1"
    assert "NOTIFY_SOCKET" not in environment
    assert "GLIBC_TUNABLES" not in environment
    runner.close()
    assert wait(runner.exit_fileno())
    runner.release()
