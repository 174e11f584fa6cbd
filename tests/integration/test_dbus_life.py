"""Callers that vanish, block, flood or wait; a bus and a name that are lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from gi.repository import Gio, GLib
from tests.fakes.bus_client import BusClient, records
from tests.fakes.bus_load import open_files
from tests.integration.conftest import Spawn

from stoker.api import contract
from stoker.errors import InvalidRequest, RequestTooLarge, Unavailable
from stoker.tour.private_bus import PrivateBus

pytestmark = pytest.mark.bus


@pytest.fixture
def server(private_bus: PrivateBus, spawn: Spawn) -> subprocess.Popen[str]:
    return spawn("tests.fakes.dbus_server", private_bus.address, "--keep", "0.1", ready="ready")


@pytest.fixture
def caller(private_bus: PrivateBus, server: object) -> Iterator[BusClient]:
    with BusClient(private_bus.address) as found:
        yield found


def until(condition: Callable[[], bool], limit_s: float = 5.0) -> bool:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return condition()


def active(client: BusClient) -> int:
    return int(client.get(contract.INFERENCE, "ActiveJobs"))


def test_jobs_of_a_caller_that_left_the_bus_are_cancelled(
    private_bus: PrivateBus, caller: BusClient, server: subprocess.Popen[str]
) -> None:
    active(caller)
    files = open_files(server.pid)
    with BusClient(private_bus.address) as other:
        streams = [other.create_job("hold")[1] for _ in range(3)]
        assert active(caller) == 3
    try:  # the streams stay open: only the bus can tell that the caller is gone
        assert until(lambda: active(caller) == 0)
        assert until(lambda: open_files(server.pid) == files)
    finally:
        for stream in streams:
            os.close(stream)


def test_a_pending_ask_of_a_caller_that_left_is_cancelled(
    private_bus: PrivateBus, caller: BusClient
) -> None:
    with BusClient(private_bus.address) as other:
        args = GLib.Variant("(s)", ("hold",))
        other.con.call(
            contract.BUS_NAME, contract.AGENT_PATH, contract.INFERENCE, "Ask", args,
            None, 0, -1, None, None,
        )  # fmt: skip
        other.con.flush_sync(None)
        assert until(lambda: active(caller) == 1)
    assert until(lambda: active(caller) == 0)


def test_closing_the_pipe_cancels_the_job(caller: BusClient, server: subprocess.Popen[str]) -> None:
    active(caller)
    files = open_files(server.pid)
    job, stream = caller.create_job("hold")
    os.close(stream)
    assert until(lambda: active(caller) == 0)
    assert until(lambda: open_files(server.pid) == files)
    assert job.startswith(contract.JOBS_PATH)


def test_two_callers_are_served_side_by_side_while_an_ask_waits(
    private_bus: PrivateBus, caller: BusClient
) -> None:
    answers: list[str] = []

    def keep(con: Gio.DBusConnection, result: Gio.AsyncResult) -> None:
        answers.append(con.call_finish(result).unpack()[0])

    args = GLib.Variant("(s)", ("wait 700",))
    caller.con.call(
        contract.BUS_NAME, contract.AGENT_PATH, contract.INFERENCE, "Ask", args,
        None, 0, -1, None, keep,
    )  # fmt: skip
    caller.con.flush_sync(None)
    with BusClient(private_bus.address) as other:
        start = time.monotonic()
        assert other.ask("quick") == "quick "
        assert caller.ask("me too") == "me too "  # nor does it block its own caller
        assert time.monotonic() - start < 0.5
    assert answers == []
    context = GLib.MainContext.default()
    while not answers:
        context.iteration(True)
    assert answers == ["late"]


STOPPED = """
import os, signal, sys
from gi.repository import GLib
from tests.fakes.bus_client import BusClient
client = BusClient(sys.argv[1])
jobs = [client.create_job("wait 300") for _ in range(1)]
request = {"prompt": GLib.Variant("s", "signals %s" % sys.argv[2])}
for _ in range(4):
    client.con.call("org.stoker.Agent1", "/org/stoker/Agent1", "org.stoker.Inference1",
        "CreateJob", GLib.Variant("(a{sv}a{sv})", (request, {})), None, 0, -1, None, None)
client.con.flush_sync(None)
print("stopping", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_thousands_of_signals_to_a_stopped_client_hurt_nobody(
    private_bus: PrivateBus, caller: BusClient, server: subprocess.Popen[str], root: object,
    child_env: dict[str, str],
) -> None:  # fmt: skip
    slow = subprocess.Popen(
        [sys.executable, "-c", STOPPED, private_bus.address, "5000"],
        stdout=subprocess.PIPE, text=True, env=child_env, cwd=str(root),
    )  # fmt: skip
    try:
        assert slow.stdout is not None
        assert slow.stdout.readline() == "stopping\n"
        slowest = 0.0
        end = time.monotonic() + 4
        while time.monotonic() < end:
            start = time.monotonic()
            assert caller.ask("still there") == "still there "
            slowest = max(slowest, time.monotonic() - start)
            if active(caller) == 0:
                break
        assert until(lambda: active(caller) == 0, 20)
        assert slowest < 2.0
        assert server.poll() is None
        _job, stream = caller.create_job("after the flood")
        assert "done" in list(records(stream))[-1]
    finally:
        os.kill(slow.pid, signal.SIGKILL)
        slow.wait()
        assert slow.stdout is not None
        slow.stdout.close()


def test_properties_changed_comes_at_most_once_a_second(
    private_bus: PrivateBus, spawn: Spawn
) -> None:
    address = private_bus.address
    spawn("tests.fakes.dbus_server", address, "--thermal-step", "5", ready="ready")
    heard: list[float] = []

    def hear(*signal: GLib.Variant) -> None:
        heard.append(signal[5].unpack()[1]["Temperature"])

    with BusClient(address) as client:
        client.con.signal_subscribe(
            contract.BUS_NAME, contract.PROPERTIES, "PropertiesChanged", contract.AGENT_PATH,
            contract.THERMAL, 0, hear,
        )  # fmt: skip
        context = GLib.MainContext.default()
        end = time.monotonic() + 2.6
        while time.monotonic() < end:
            context.iteration(False)
            time.sleep(0.01)
    assert 2 <= len(heard) <= 3
    assert heard == sorted(heard)


def test_a_falling_headroom_is_told_once_for_each_threshold(
    private_bus: PrivateBus, spawn: Spawn
) -> None:
    heard: list[tuple[float, bool, float]] = []
    with BusClient(private_bus.address) as client:
        client.con.signal_subscribe(
            contract.BUS_NAME, contract.THERMAL, "HeadroomCrossed", contract.AGENT_PATH,
            None, 0, lambda *signal: heard.append(signal[5].unpack()),
        )  # fmt: skip
        address = private_bus.address
        spawn("tests.fakes.dbus_server", address, "--thermal-step", "5", ready="ready")
        context = GLib.MainContext.default()
        end = time.monotonic() + 10.0
        while len(heard) < 4 and time.monotonic() < end:
            context.iteration(False)
            time.sleep(0.005)
    thresholds = [threshold for threshold, _above, _headroom in heard]
    assert thresholds == [0.75, 0.5, 0.25, 0.1]
    assert all(not above and now <= threshold for threshold, above, now in heard)


def test_limits_of_a_reloaded_configuration_hold_at_once(caller: BusClient) -> None:
    two = GLib.Variant("u", 2)
    os.close(caller.create_job("words", max_tokens=two)[1])
    assert caller.call(contract.AGENT, "Reload") == ["daemon.bus"]
    with pytest.raises(InvalidRequest, match="max_tokens"):
        caller.create_job("words", max_tokens=two)
    with pytest.raises(RequestTooLarge):
        caller.ask("x" * 5000)


def test_a_lost_bus_ends_the_service_with_a_typed_error(
    private_bus: PrivateBus, spawn: Spawn
) -> None:
    server = spawn(
        "tests.fakes.dbus_server", private_bus.address, ready="ready", stderr=subprocess.PIPE
    )
    private_bus.stop()
    _out, said = server.communicate(timeout=10)
    assert server.returncode == 69
    assert "cannot use the bus" in said


def test_a_name_that_is_taken_is_a_typed_error(
    private_bus: PrivateBus, server: object, spawn: Spawn
) -> None:
    second = spawn("tests.fakes.dbus_server", private_bus.address, stderr=subprocess.PIPE)
    _out, said = second.communicate(timeout=10)
    assert second.returncode == 69
    assert "cannot own bus name org.stoker.Agent1: another process has it" in said


def test_stopping_gives_the_name_back_and_answers_open_calls(
    caller: BusClient, server: subprocess.Popen[str]
) -> None:
    errors: list[str] = []

    def ended(con: Gio.DBusConnection, result: Gio.AsyncResult) -> None:
        try:
            con.call_finish(result)
        except GLib.Error as error:
            errors.append(error.message)

    args = GLib.Variant("(s)", ("hold",))
    caller.con.call(
        contract.BUS_NAME, contract.AGENT_PATH, contract.INFERENCE, "Ask", args,
        None, 0, -1, None, ended,
    )  # fmt: skip
    caller.con.flush_sync(None)
    assert until(lambda: active(caller) == 1)
    server.terminate()
    assert server.wait(10) == 0
    context = GLib.MainContext.default()
    while not errors:
        context.iteration(True)
    assert "org.stoker.Error.Unavailable: cannot finish the call" in errors[0]
    with pytest.raises(Unavailable):
        caller.ask("anyone?")
