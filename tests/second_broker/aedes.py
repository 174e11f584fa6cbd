"""The fleet against a broker that is not mosquitto: aedes, MQTT 3.1.1. ``make second-broker``.

Not among the tests that always run: it fetches aedes, pinned by package-lock.json, with npm.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.fleet_operator import FleetOperator
from tests.fakes.mqtt_peer import Peer
from tests.fakes.pki import World
from tests.fakes.update_bundles import Operator, ota
from tests.integration import broker_rig, update_rig
from tests.integration.fleet_rig import DEVICE, Ear, Rig, fleet_config
from tests.integration.stokerd_rig import stokerd, until

from stoker.tour.private_bus import PrivateBus

HERE = Path(__file__).parent
SIZE = 1 << 18


class Aedes(broker_rig.Broker):
    """As the rig's mosquitto; nothing it retains outlives it."""

    def start(self) -> None:
        home = self.folder.parent / "aedes"
        if not home.exists():
            home.mkdir()
            for name in ("package.json", "package-lock.json", "broker.cjs"):
                shutil.copy(HERE / name, home / name)
            subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=home, check=True)
        command = ["node", "broker.cjs", str(self.port)]
        self._process = subprocess.Popen(command, cwd=home, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"


@pytest.fixture
def maker(tmp_path: Path) -> Operator:
    made = Operator.found(tmp_path / "maker")
    content = random.Random(1).randbytes(SIZE)
    (made.home / "v1").write_bytes(content)
    (made.home / "v2").write_bytes(content[: SIZE // 2] + random.Random(2).randbytes(SIZE // 2))
    made.bundle(1, made.home / "v1", made.home / "v2")
    return made


@pytest.fixture
def rig(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str], maker: Operator
) -> Iterator[Rig]:
    text = fleet_config(
        broker := Aedes(tmp_path / "broker"), maker.trust,
        updates='sources = ["mqtt:"]\nretry_s = 0.5\n',
    )  # fmt: skip
    models = f'[models.chat]\npath = "{maker.home / "v1"}"\ncontext_tokens = 512\n'
    with (
        broker_rig.started(broker),
        _listener(broker) as other,
        stokerd(private_bus, tmp_path, child_env, "--engine=echo", config=models + text) as daemon,
    ):
        ear = Ear(other)
        ear.listen()
        running = Rig(broker, FleetOperator.of_pki(maker.home / "pki"), ear, daemon, child_env)
        running.online(60)
        daemon.wait_ready()
        yield running


def _listener(broker: broker_rig.Broker) -> Peer:
    return Peer(("127.0.0.1", broker.port), v5=False)


def test_a_fleet_lives_on_another_broker(rig: Rig, maker: Operator) -> None:
    assert rig.facts()["Protocol"] == 4
    assert rig.do("config.get", {"keys": ["device.id"]})["state"] == "succeeded"
    assert rig.do("report.diagnostics")["state"] == "succeeded"
    _, forged = FleetOperator(World()).command(DEVICE, "runtime.restart")
    rig.ear.say("cmd", forged)
    until(lambda: rig.facts()["Forged"] == 1, "that it was counted")
    wish = rig.operator.desired(f"d:{DEVICE}", {"policy": {"inference.max_tokens": 33}})
    rig.ear.say("desired", wish, retain=True)
    until(lambda: rig.facts()["Desired"] == {f"d:{DEVICE}": 1}, "the desired state")
    where = ("--broker", f"mqtt://127.0.0.1:{rig.broker.port}")
    said = ota("publish", "bundle-1", *where, home=maker.home)
    assert said["documents"] == 2, json.dumps(said)
    end = rig.do("update.install", {"deployment": "chat"})
    assert end["state"] == "succeeded", end
    served = Path(update_rig.served_path(rig.daemon)).read_bytes()
    assert served == (maker.home / "v2").read_bytes()


def test_a_broker_that_restarts_gets_its_device_back(rig: Rig) -> None:
    session = rig.facts()["Session"]
    rig.broker.kill()
    until(lambda: rig.facts()["State"] != "online", "the loss")
    rig.broker.start()
    until(lambda: rig.facts()["State"] == "online", "the return")
    assert rig.facts()["Session"] > session
    rig.ear.peer.close()
    with _listener(rig.broker) as again:
        rig.ear.peer = again
        rig.ear.listen()
        assert rig.do("report.state")["state"] == "succeeded"
