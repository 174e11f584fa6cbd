"""Many calls in flight over one connection, as fast as they are answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gi.repository import GLib
from tests.fakes.bus_client import BusClient

from stoker.api import contract


def pour(client: BusClient, count: int, interface: str, method: str, args: Any) -> int:
    """``count`` calls, 32 at a time; returns how many ended with an error."""
    context = GLib.MainContext.new()
    context.push_thread_default()
    state = {"sent": 0, "done": 0, "failed": 0}

    def send() -> None:
        state["sent"] += 1
        client.con.call(
            contract.BUS_NAME, contract.AGENT_PATH, interface, method, args,
            None, 0, -1, None, ended,
        )  # fmt: skip

    def ended(con: Any, result: Any) -> None:
        state["done"] += 1
        try:
            con.call_with_unix_fd_list_finish(result) if method == "CreateJob" else (
                con.call_finish(result)
            )
        except GLib.Error:
            state["failed"] += 1
        if state["sent"] < count:
            send()

    try:
        for _ in range(min(32, count)):
            send()
        while state["done"] < count:
            context.iteration(True)
    finally:
        context.pop_thread_default()
    return state["failed"]


def resident_mb(pid: int) -> float:
    """Resident set of a process in MB (10⁶ bytes)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def open_files(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
