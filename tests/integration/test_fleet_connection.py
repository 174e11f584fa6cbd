"""Ways into a broker, what is told of those that fail, and what waits while there is none."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from tests.fakes.fleet_operator import FleetOperator
from tests.fakes.old_gate import OldGate
from tests.fakes.tls_world import TlsWorld
from tests.integration import broker_rig
from tests.integration.broker_rig import ACL, PASSWORD, Broker
from tests.integration.fleet_rig import DEVICE, Ear, Rig, fleet, fleet_config
from tests.integration.stokerd_rig import Stokerd, stokerd, until

from stoker.api import contract
from stoker.tour.private_bus import PrivateBus

pytestmark = [pytest.mark.bus]
Env = dict[str, str]
Way = Callable[[Path], tuple[Broker, dict[str, object]]]


def by_password(folder: Path) -> tuple[Broker, dict[str, object]]:
    broker = broker_rig.by_password(folder / "broker", DEVICE)
    file = folder / "password"
    file.write_text(PASSWORD + "\nnot this line\n")
    return broker, {"username": DEVICE, "password_file": str(file)}


def by_socket(folder: Path) -> tuple[Broker, dict[str, object]]:
    return broker_rig.by_socket(folder / "broker"), {}


@pytest.mark.parametrize("way", [by_password, by_socket])
def test_each_way_in_takes_commands(
    private_bus: PrivateBus, tmp_path: Path, child_env: Env, way: Way
) -> None:
    broker, more = way(tmp_path)
    with (
        broker_rig.started(broker),
        fleet(private_bus, tmp_path / "device", child_env, broker, more) as rig,
    ):
        assert rig.do("report.state")["state"] == "succeeded"


def steps(daemon: Stokerd) -> dict[str, tuple[str, str]]:
    found = daemon.client.call(contract.FLEET, "Test", None, contract.AGENT_PATH, 60_000)
    return {str(item["name"]): (str(item["outcome"]), str(item["text"])) for item in found}


def test_a_good_way_is_told_step_by_step(
    private_bus: PrivateBus, tmp_path: Path, child_env: Env
) -> None:
    broker = broker_rig.by_certificate(tmp_path / "broker", TlsWorld(tmp_path / "tls"))
    with (
        broker_rig.started(broker),
        fleet(private_bus, tmp_path / "device", child_env, broker) as rig,
    ):
        found = steps(rig.daemon)
        assert [outcome for outcome, _ in found.values()] == ["ok"] * 8, found
        assert rig.facts()["State"] == "online"  # it was not thrown out
        shown = subprocess.run(
            [sys.executable, "-m", "stoker.cli.main", "--bus", private_bus.address, "fleet"],
            env=child_env, capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        assert "online" in shown.stdout
        assert f"{DEVICE}, session 1" in shown.stdout


@pytest.mark.parametrize(
    ("fault", "step", "cause"),
    [("down", "tcp", "network"), ("authority", "tls", "tls"), ("name", "dns", "dns"),
     ("certificate", "tls", "tls"), ("expired", "tls", "clock")],
)  # fmt: skip
def test_a_wrong_way_is_explained(
    private_bus: PrivateBus, tmp_path: Path, child_env: Env, fault: str, step: str, cause: str
) -> None:
    world = TlsWorld(tmp_path / "tls")
    broker = broker_rig.by_certificate(tmp_path / "broker", world)
    home = tmp_path / "device"
    home.mkdir()
    trust = FleetOperator().write_trust(home / "trust.json")
    if fault == "expired":
        broker._server = world.server(life=timedelta(days=-2))
    config = fleet_config(broker, trust)
    other = TlsWorld(tmp_path / "other")
    if fault == "authority":
        config = config.replace(str(world.ca), str(other.ca))
    elif fault == "name":
        config = config.replace("localhost:", "no-such-host.invalid:")
    elif fault == "certificate":
        (world.folder / f"{DEVICE}.pem").write_bytes(other.device(DEVICE).certificate.read_bytes())
        (world.folder / f"{DEVICE}.key").write_bytes((other.folder / f"{DEVICE}.key").read_bytes())
    if fault != "down":
        broker.start()
    try:
        with stokerd(private_bus, home, child_env, "--engine=echo", config=config) as daemon:
            found = steps(daemon)
            assert found[step][0] == "failed", found
            assert all(outcome == "skipped" for outcome, _ in list(found.values())[-1:])
            facts = daemon.client.get_all(contract.FLEET)
            assert facts["State"] in ("waiting", "connecting")
            if cause != "tls" or fault == "authority":
                until(lambda: daemon.client.get(contract.FLEET, "Problem")[0] == cause,
                      f"{cause}: {daemon.client.get(contract.FLEET, 'Problem')}")  # fmt: skip
    finally:
        broker.kill()


def test_a_topic_that_is_denied_is_noticed(
    private_bus: PrivateBus, tmp_path: Path, child_env: Env
) -> None:
    broker, more = by_password(tmp_path)
    broker.acl = ACL.replace("pattern write stoker/1/d/%u/result\n", "")
    with (
        broker_rig.started(broker),
        fleet(private_bus, tmp_path / "device", child_env, broker, more) as rig,
    ):
        _, payload = rig.operator.command(DEVICE, "report.state")
        rig.ear.say("cmd", payload)
        until(lambda: rig.facts()["Denied"] == [f"stoker/1/d/{DEVICE}/result"], f"{rig.facts()}")
        assert rig.facts()["Outbox"][0] == 3  # kept for a broker that allows it
        assert any("denies" in text for text in rig.facts()["Warnings"])


def test_what_nobody_could_hear_is_told_later(
    private_bus: PrivateBus, tmp_path: Path, child_env: Env
) -> None:
    broker = broker_rig.plain(tmp_path / "broker")
    with (
        broker_rig.started(broker),
        fleet(private_bus, tmp_path / "device", child_env, broker, telemetry_s=0.2) as rig,
    ):
        until(lambda: rig.ear.last("telemetry"), "telemetry")
        broker.kill()
        until(lambda: rig.facts()["Outbox"][0] >= 5, "telemetry in the outbox")
        rig.daemon.process.send_signal(signal.SIGSTOP)  # the operator must listen before it speaks
        broker.start()
        until(rig.ear.peer.client.is_connected, "the operator")
        rig.ear.listen()
        rig.daemon.process.send_signal(signal.SIGCONT)
        until(lambda: rig.facts()["Outbox"][0] == 0, "an empty outbox")
        rig.ear.pump()
        said = [payload for topic, payload, _ in rig.ear.heard if topic.endswith("/telemetry")]
        assert len(said) >= 5
        assert {"tokens_per_s", "p99_s", "headroom", "queue_depth"} <= set(
            rig.ear.last("telemetry")
        )


def test_a_clean_stop_says_why_and_a_cut_leaves_the_will(
    private_bus: PrivateBus, tmp_path: Path, child_env: Env
) -> None:
    broker = broker_rig.plain(tmp_path / "broker")
    with (
        broker_rig.started(broker),
        fleet(private_bus, tmp_path / "device", child_env, broker) as rig,
    ):
        rig.daemon.stop()
        until(lambda: rig.ear.last("status").get("why") == "stop", "the last word")
        rig.restart()
        until(lambda: rig.ear.last("status")["online"], "the birth")
        session = rig.ear.last("status")["session"]
        assert session >= 2
        rig.daemon.process.kill()
        until(lambda: rig.ear.last("status").get("why") == "lost", "the will")
        assert rig.ear.last("status")["session"] == session
        rig.daemon.process.wait(10)
        time.sleep(0.1)
        rig.restart()


def test_an_agent_without_a_broker_loads_nothing_of_it(
    private_bus: PrivateBus, tmp_path: Path, child_env: Env
) -> None:
    with stokerd(private_bus, tmp_path, child_env, "--engine=echo") as daemon:
        assert daemon.client.get(contract.FLEET, "State") == "off"
        maps = Path(f"/proc/{daemon.process.pid}/maps").read_text()
        assert "_rust.abi3.so" not in maps  # cryptography
        assert "libcrypto" not in maps or "_ssl" not in maps


def test_a_broker_that_knows_only_3_1_1_is_spoken_to_in_3_1_1(
    private_bus: PrivateBus, tmp_path: Path, child_env: Env
) -> None:
    broker = broker_rig.plain(tmp_path / "broker")
    with broker_rig.started(broker), OldGate(broker.port) as door:
        front = Broker(tmp_path / "front")
        front.port = door.port
        with contextlib.ExitStack() as stack:
            operator = FleetOperator()
            home = tmp_path / "device"
            home.mkdir()
            config = fleet_config(front, operator.write_trust(home / "trust.json"))
            ear = Ear(stack.enter_context(broker_rig.peer(broker)))
            ear.listen()
            daemon = stack.enter_context(
                stokerd(private_bus, home, child_env, "--engine=echo", config=config)
            )
            rig = Rig(broker, operator, ear, daemon, child_env)
            rig.online()
            assert rig.facts()["Protocol"] == 4
            assert door.levels == [5, 4]
            assert rig.do("report.state")["state"] == "succeeded"
            found = steps(daemon)
            assert found["login"] == ("ok", "let in with MQTT 3.1.1")
            assert found["publish"][0] == "unknown"
