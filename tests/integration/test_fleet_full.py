"""A device that has no room: nobody takes what it says, or its disk takes nothing more."""

from __future__ import annotations

import contextlib
import resource
import signal
import sqlite3
from pathlib import Path

import pytest
from tests.integration.broker_rig import Broker
from tests.integration.fleet_rig import DEVICE, Rig, fleet
from tests.integration.stokerd_rig import until

from stoker.tour.private_bus import PrivateBus

pytestmark = [pytest.mark.bus]
Env = dict[str, str]
BOUND = 256 << 10


def years_of_telemetry(rig: Rig) -> None:
    """As if the broker had been away for so long: more than the outbox may hold."""
    with contextlib.closing(sqlite3.connect(rig.daemon.home / "state" / "fleet.db")) as con:
        made_s = con.execute("SELECT max(made_s) FROM outbox").fetchone()[0]
        topic, size = f"stoker/1/d/{DEVICE}/telemetry", 8 << 10
        row = ("telemetry", topic, size, made_s, bytes(size))
        con.executemany(
            "INSERT INTO outbox (kind, topic, size_bytes, made_s, payload) VALUES (?, ?, ?, ?, ?)",
            [row] * (2 * BOUND // size),
        )
        con.commit()


def test_an_outbox_that_is_full_when_the_broker_comes_back_has_lost_telemetry_only(
    private_bus: PrivateBus, tmp_path: Path, child_env: Env, secure: Broker
) -> None:
    more = {"outbox_bytes": BOUND, "telemetry_s": 0.2}
    with fleet(private_bus, tmp_path / "device", child_env, secure, more) as rig:
        identity, payload = rig.operator.command(DEVICE, "report.state")
        rig.daemon.process.send_signal(signal.SIGSTOP)  # it gets the command with its last breath
        rig.ear.say("cmd", payload)
        secure.kill()
        rig.daemon.process.send_signal(signal.SIGCONT)
        until(lambda: rig.facts()["State"] != "online", "the loss")
        until(lambda: rig.facts()["Outbox"][0] > 3, "telemetry in the outbox")
        years_of_telemetry(rig)
        until(lambda: rig.facts()["Dropped"], "a full outbox")
        until(lambda: rig.facts()["Outbox"][1] <= BOUND, "room")
        rig.daemon.process.send_signal(signal.SIGSTOP)  # the operator must listen before it speaks
        secure.start()
        until(rig.ear.peer.client.is_connected, "the operator", 30.0)
        rig.ear.listen()
        rig.daemon.process.send_signal(signal.SIGCONT)
        rig.online(60.0)
        assert rig.ear.end(identity)["state"] == "succeeded"
        until(lambda: rig.facts()["Outbox"][0] == 0, "an empty outbox")
        assert rig.do("report.state")["state"] == "succeeded"


def disk(rig: Rig, *, full: bool) -> None:
    """No file may grow beyond a KiB: the system refuses as it does for want of room."""
    pid, (_, hard) = rig.daemon.process.pid, resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1024 if full else hard, hard))


def test_with_a_full_disk_nothing_is_done_that_could_not_be_remembered(
    private_bus: PrivateBus, tmp_path: Path, child_env: Env, secure: Broker
) -> None:
    with fleet(private_bus, tmp_path / "device", child_env, secure) as rig:
        pid, session = rig.daemon.status()["runner_pid"], rig.facts()["Session"]
        disk(rig, full=True)
        identity, payload = rig.operator.command(DEVICE, "runtime.restart")
        rig.ear.say("cmd", payload)
        until(lambda: any("kept" in text for text in rig.facts()["Warnings"]), f"{rig.facts()}")
        secure.restart_hard()  # also one that comes back says so, and does nothing
        until(lambda: rig.facts()["State"] != "online", "the loss")
        until(rig.ear.peer.client.is_connected, "the operator", 30.0)
        rig.ear.listen()
        rig.online(60.0)
        rig.ear.say("cmd", payload)
        assert rig.quiet(1.0) == []
        assert rig.daemon.status()["runner_pid"] == pid
        assert rig.facts()["Session"] > session
        disk(rig, full=False)
        rig.ear.say("cmd", payload)
        assert rig.ear.end(identity)["state"] == "succeeded"
        assert rig.daemon.status()["runner_pid"] != pid
        until(lambda: not any("kept" in t for t in rig.facts()["Warnings"]), f"{rig.facts()}")
