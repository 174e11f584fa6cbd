"""A hostile broker, network and sender: nothing that the fleet has not signed does anything.

TLS, certificates and ACLs, as docs/fleet.md shows them. ``make second-broker`` runs the same
tests against aedes.
"""

from __future__ import annotations

import contextlib
import queue
import random
import signal
import sqlite3
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.fakes.pki import Party, World
from tests.integration.broker_rig import Broker, peer
from tests.integration.fleet_rig import DEVICE, Rig, fleet
from tests.integration.stokerd_rig import until

from stoker.drivers.mqtt import PahoBroker
from stoker.drivers.mqtt_dial import BrokerAccess
from stoker.events.broker import parse
from stoker.events.fleet import BrokerEvent, Login, Lost
from stoker.tour.private_bus import PrivateBus
from stoker_ota.core.fleet_documents import Target

pytestmark = [pytest.mark.bus]


@pytest.fixture
def rig(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str], secure: Broker
) -> Iterator[Rig]:
    with fleet(private_bus, tmp_path / "device", child_env, secure) as running:
        yield running


def stored(rig: Rig) -> dict[str, list[tuple[object, ...]]]:
    """All that the fleet client has on the disk."""
    con = sqlite3.connect(rig.daemon.home / "state" / "fleet.db")
    try:
        return {
            table: con.execute(f"SELECT * FROM {table}").fetchall()
            for table in ("commands", "floors", "desired", "notes", "outbox")
        }
    finally:
        con.close()


def rest(rig: Rig) -> None:
    """Until all that was said is sent."""
    until(lambda: not stored(rig)["outbox"], "an empty outbox")


def forgeries(rig: Rig) -> dict[str, bytes]:
    operator, value = rig.operator, rig.operator.value(DEVICE, "runtime.restart")
    good = operator.signed(value)
    strangers = World()
    return {
        "unsigned": b'{"id":"1","command":"runtime.restart"}',
        "not even JSON": b"\xff\xfe\x00restart",
        "empty": b"",
        "truncated": good[: len(good) // 2],
        "one bit": good.replace(b"sig", b"sjg"),
        "by a stranger": operator.signed(value, strangers.parties["fleet"]),
        "by another role": operator.signed(value, operator.world.parties["release"]),
        "a desired state": operator.desired(f"d:{DEVICE}", {}),
        "oversize": b"{" + b" " * (200 << 10) + b"}",
        "deep": b"[" * 5000,
        "a certificate from next year": operator.signed(value, _later(operator.world)),
    }


def _later(world: World) -> Party:
    start = datetime.now(UTC) + timedelta(days=300)
    return world.signer("fleet", start=start, end=start + timedelta(days=30))


def test_what_the_fleet_has_not_signed_causes_no_answer_no_write_and_no_crash(rig: Rig) -> None:
    assert rig.do("report.state")["state"] == "succeeded"
    rest(rig)
    before, pid, forged = stored(rig), rig.daemon.status()["runner_pid"], rig.facts()["Forged"]
    bad = forgeries(rig)
    for payload in bad.values():
        rig.ear.say("cmd", payload)
        if payload != bad["a desired state"]:
            rig.ear.say("desired", payload)
    rig.ear.say("cmd", b"", retain=True)
    expected = 2 * len(bad) - 3  # empty ones are nothing to count
    until(lambda: rig.facts()["Forged"] == forged + expected, f"counts: {rig.facts()}")
    assert rig.quiet(0.5) == []
    assert stored(rig) == before
    assert rig.daemon.status()["runner_pid"] == pid
    assert rig.daemon.process.poll() is None
    assert rig.do("report.state")["state"] == "succeeded"


def test_duplicates_and_replays_do_nothing_twice(rig: Rig) -> None:
    identity, payload = rig.operator.command(DEVICE, "runtime.restart")
    rig.ear.say("cmd", payload)
    end = rig.ear.end(identity)
    pid = rig.daemon.status()["runner_pid"]
    for _ in range(5):
        rig.ear.say("cmd", payload)
    until(lambda: len([r for r in rig.ear.results(identity) if r["state"] == end["state"]]) > 1,
          "the same answer")  # fmt: skip
    assert rig.ear.results(identity)[-1]["number"] == end["number"]
    assert rig.daemon.status()["runner_pid"] == pid
    # the same words under a sequence number that was passed long ago
    rig.operator.sequence = 500
    rig.do("report.state")
    old = rig.do("runtime.restart", sequence=3)
    assert (old["state"], old["code"]) == ("rejected", "rollback")
    assert rig.daemon.status()["runner_pid"] == pid


def test_misdirected_future_and_retained_commands_are_not_done(rig: Rig) -> None:
    pid = rig.daemon.status()["runner_pid"]
    other = rig.do("runtime.restart", target=Target(device="dev-2"))
    assert (other["state"], other["code"]) == ("rejected", "wrong-target")
    _, payload = rig.operator.command(DEVICE, "runtime.restart")
    rig.ear.say("cmd", payload, retain=True)  # to one that listens it is not a retained one …
    until(lambda: rig.daemon.status()["runner_pid"] != pid, "another runner")
    pid = rig.daemon.status()["runner_pid"]
    forged, session = rig.facts()["Forged"], rig.facts()["Session"]
    with peer(rig.broker, DEVICE, name=DEVICE):  # … but to one that comes back it is
        until(lambda: rig.facts()["State"] != "online", "the loss")
    until(lambda: rig.facts()["Session"] > session, "the return", 60.0)
    until(lambda: rig.facts()["Forged"] == forged + 1, "the retained one")
    assert rig.daemon.status()["runner_pid"] == pid


def test_what_was_retained_outlives_a_restart_and_is_ignored(rig: Rig) -> None:
    _, payload = rig.operator.command(DEVICE, "runtime.restart")
    pid = rig.daemon.status()["runner_pid"]
    rig.ear.say("cmd", payload, retain=True)
    until(lambda: rig.daemon.status()["runner_pid"] != pid, "another runner")
    pid, forged = rig.daemon.status()["runner_pid"], rig.facts()["Forged"]
    rig.broker.restart()
    until(lambda: rig.facts()["State"] != "online", "the loss")
    rig.online(60.0)
    until(lambda: rig.facts()["Forged"] == forged + 1, "the retained one")
    assert rig.daemon.status()["runner_pid"] == pid


def test_a_desired_state_waits_for_a_device_and_older_ones_are_replays(rig: Rig) -> None:
    first = rig.operator.desired(f"d:{DEVICE}", {"policy": {"inference.max_tokens": 9}})
    rig.daemon.stop()
    rig.ear.say("desired", first, retain=True)
    rig.restart()
    until(lambda: rig.ear.last("state").get("desired") == {f"d:{DEVICE}": 1}, "version 1")
    newer = rig.operator.desired(f"d:{DEVICE}", {"policy": {"inference.max_tokens": 11}})
    rig.ear.say("desired", newer, retain=True)
    until(lambda: rig.ear.last("state").get("desired") == {f"d:{DEVICE}": 2}, "version 2")
    rig.ear.say("desired", first, retain=True)
    rig.ear.say("desired", b"", retain=True)
    assert rig.quiet(0.5) == []
    found = rig.do("config.get", {"keys": ["inference.max_tokens"]})["data"]["settings"]
    assert found["inference.max_tokens"] == 11
    # for somebody else, under our topic
    rig.ear.say("desired", rig.operator.desired("d:dev-2", {}, groups=("red",)), retain=True)
    until(lambda: rig.facts()["Forged"] >= 1, "the misdirected one")
    assert rig.facts()["Groups"] == []


def test_a_broker_that_dies_again_and_again_loses_no_result(rig: Rig) -> None:
    ends, dice = [], random.Random(7)
    for _ in range(4):
        identity, payload = rig.operator.command(DEVICE, "report.state")
        rig.ear.say("cmd", payload)
        until(lambda i=identity: rig.ear.results(i), "the begin")  # type: ignore[misc]
        time.sleep(dice.uniform(0.0, 0.3))
        rig.broker_dies(dice.choice((signal.SIGKILL, signal.SIGTERM)))
        ends.append(rig.ear.end(identity, 60.0)["state"])
    assert ends == ["succeeded"] * 4
    assert rig.ear.last("status")["online"] is True


class Twin:
    """Another device with our id, which comes back at once whenever it is thrown out."""

    def __init__(self, broker: Broker) -> None:
        assert broker.tls is not None
        self._level = 5 if broker.v5 else 4
        pair = broker.tls.device(DEVICE)
        address = parse(f"mqtts://localhost:{broker.port}")
        access = BrokerAccess(address, str(broker.tls.ca), str(pair.certificate), str(pair.key))
        self.connections = 0
        self._events: queue.Queue[BrokerEvent] = queue.Queue()
        self._broker = PahoBroker(access, self._events.put)

    def fight(self, seconds: float) -> None:
        limit = time.monotonic() + seconds
        self._connect()
        while time.monotonic() < limit:
            with contextlib.suppress(queue.Empty):
                event = self._events.get(timeout=0.1)
                if isinstance(event, Lost) and event.connection == self.connections:
                    self._connect()

    def _connect(self) -> None:
        self.connections += 1
        will = (f"stoker/1/d/{DEVICE}/status", b"{}")
        self._broker.connect(Login(DEVICE, self._level, will), self.connections)

    def close(self) -> None:
        self._broker.disconnect(None, 1.0)


def test_two_devices_with_one_id_are_noticed_and_not_fought_for(rig: Rig) -> None:
    twin = Twin(rig.broker)
    try:
        limit = time.monotonic() + 40.0
        while rig.facts()["Problem"][0] != "identity-clash":
            assert time.monotonic() < limit, rig.daemon.text()
            twin.fight(1.0)
        session, fights = rig.facts()["Session"], twin.connections
        twin.fight(3.0)
        assert rig.facts()["Session"] == session  # it waits
        assert twin.connections == fights + 1  # nobody throws the other one out
    finally:
        twin.close()


def test_cuts_at_any_moment_leave_one_effect_and_one_answer(rig: Rig) -> None:
    for delay in (0.0, 0.02, 0.1):
        value = rig.operator.value(
            DEVICE, "policy.set", {"values": {"inference.max_tokens": 5 + int(delay * 100)}}
        )
        rig.ear.say("cmd", rig.operator.signed(value))
        time.sleep(delay)
        rig.kill()
        rig.online(60.0)
        end = rig.ear.end(value.id, 60.0)
        assert end["state"] == "succeeded", end
        finals = {r["number"] for r in rig.ear.results(value.id) if r["state"] == "succeeded"}
        assert len(finals) == 1
