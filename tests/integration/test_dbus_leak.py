"""What a call leaves behind in the service: nothing, however many come.

PyGObject on GLib before 2.84 leaks every invocation; see docs/adr/0002.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from gi.repository import GLib
from tests.fakes.bus_client import BusClient, records
from tests.fakes.bus_load import open_files, pour, resident_mb
from tests.integration.conftest import Spawn
from tests.integration.stokerd_rig import until

from stoker.api import contract
from stoker.tour.private_bus import PrivateBus

pytestmark = pytest.mark.bus

GROWTH_MB = 3.0
KILOBYTE = "x" * 1000


@pytest.fixture
def lone(private_bus: PrivateBus, spawn: Spawn) -> Iterator[tuple[BusClient, int]]:
    """(client, pid of the server), on a bus of their own."""
    server = spawn("tests.fakes.dbus_server", private_bus.address, "--keep", "0.1", ready="ready")
    with BusClient(private_bus.address) as client:
        yield client, server.pid


def test_forty_thousand_calls_leave_memory_flat(lone: tuple[BusClient, int]) -> None:
    client, pid = lone
    args = GLib.Variant("(s)", (KILOBYTE,))
    pour(client, 4_000, contract.INFERENCE, "CountTokens", args)
    before = resident_mb(pid)
    assert pour(client, 40_000, contract.INFERENCE, "CountTokens", args) == 0
    grown = resident_mb(pid) - before
    assert grown < GROWTH_MB, f"{grown:.1f} MB more after 40,000 calls"


@pytest.mark.parametrize(
    ("interface", "method", "args", "fails"),
    [
        (contract.PROPERTIES, "Get", ("(ss)", (contract.THERMAL, "Temperature")), False),
        (contract.PROPERTIES, "GetAll", ("(s)", (contract.INFERENCE,)), False),
        (contract.INFERENCE, "Ask", ("(s)", ("refuse busy " + KILOBYTE,)), True),
        (contract.INFERENCE, "CreateJob", ("(a{sv}a{sv})", ({}, {})), True),
        (contract.INFERENCE, "CreateJobFd", ("(ha{sv})", (0, {})), True),
    ],
)
def test_properties_and_errors_leave_memory_flat(
    lone: tuple[BusClient, int], interface: str, method: str, args: tuple[str, object], fails: bool
) -> None:
    client, pid = lone
    variant = GLib.Variant(*args)
    pour(client, 3_000, interface, method, variant)
    before = resident_mb(pid)
    assert pour(client, 10_000, interface, method, variant) == (10_000 if fails else 0)
    grown = resident_mb(pid) - before
    assert grown < GROWTH_MB, f"{grown:.1f} MB more after 10,000 calls of {method}"


def test_finished_jobs_leave_no_memory_and_no_files(lone: tuple[BusClient, int]) -> None:
    client, pid = lone

    def run(count: int) -> None:
        for _ in range(count):
            _job, stream = client.create_job(KILOBYTE)
            assert list(records(stream))
        time.sleep(0.3)  # keep_result_s is 0.1 here: the objects go

    run(400)
    before, files = resident_mb(pid), open_files(pid)
    run(1_500)
    # the last replies may be read before the service has closed its last descriptor
    until(lambda: open_files(pid) == files, f"{files} open files again", 5.0)
    assert resident_mb(pid) - before < GROWTH_MB


def test_refused_jobs_leave_no_files(lone: tuple[BusClient, int]) -> None:
    client, pid = lone
    request: tuple[dict[str, Any], dict[str, Any]] = (
        {"prompt": GLib.Variant("s", "refuse busy")},
        {},
    )
    args = GLib.Variant("(a{sv}a{sv})", request)
    pour(client, 32, contract.INFERENCE, "CreateJob", args)
    files = open_files(pid)
    assert pour(client, 1_000, contract.INFERENCE, "CreateJob", args) == 1_000
    # the last replies may be read before the service has closed its last descriptor
    until(lambda: open_files(pid) == files, f"{files} open files again", 5.0)


def test_callers_that_come_and_go_are_forgotten(
    lone: tuple[BusClient, int], private_bus: PrivateBus
) -> None:
    _client, pid = lone

    def visit(count: int) -> None:
        for _ in range(count):
            command = ["gdbus", "call", "--address", private_bus.address]
            command += ["--dest", contract.BUS_NAME, "--object-path", contract.AGENT_PATH]
            command += ["--method", f"{contract.INFERENCE}.CountTokens", "word"]
            subprocess.run(command, check=True, capture_output=True, timeout=10)

    visit(5)
    files, before = open_files(pid), resident_mb(pid)
    visit(60)
    # the last replies may be read before the service has closed its last descriptor
    until(lambda: open_files(pid) == files, f"{files} open files again", 5.0)
    assert resident_mb(pid) - before < 1.0
