"""An update over MQTT through the whole: mosquitto with TLS and rights, stoker-ota, stokerd."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.random_model import random_model
from tests.fakes.fleet_operator import FleetOperator
from tests.fakes.pki import World
from tests.fakes.tls_world import TlsWorld
from tests.fakes.update_bundles import Operator, ota, other_weights
from tests.integration import broker_rig, update_rig
from tests.integration.broker_rig import OPERATOR, Broker, access
from tests.integration.fleet_rig import DEVICE, Ear, Facts, Rig, fleet_config
from tests.integration.stokerd_rig import stokerd, until

from stoker.tour.private_bus import PrivateBus

pytestmark = [pytest.mark.bus, pytest.mark.timeout(180)]
SIZE = 1 << 20
"""Half of it changes, into what nothing compresses: nine chunks go over the air."""


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> Operator:
    made = Operator.found(tmp_path_factory.mktemp("maker"))
    content = bytearray(random.Random(1).randbytes(SIZE))
    (made.home / "v1").write_bytes(content)
    content[SIZE // 2 :] = random.Random(2).randbytes(SIZE // 2)
    (made.home / "v2").write_bytes(content)
    made.bundle(1, made.home / "v1", made.home / "v2")
    return made


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = broker_rig.by_certificate(tmp_path / "broker", TlsWorld(tmp_path / "tls"))
    with broker_rig.started(made) as running:
        yield running


def publish(maker: Operator, broker: Broker) -> Facts:
    return ota("publish", "bundle-1", *access(broker), home=maker.home)


def settings(maker: Operator, broker: Broker, model: Path, more: str = "") -> str:
    """A device whose only source of updates is the broker of its fleet."""
    text = fleet_config(
        broker, maker.trust, updates=f'sources = ["mqtt:"]\nretry_s = 0.5\n{more}'
    )  # fmt: skip
    return f'[models.chat]\npath = "{model}"\ncontext_tokens = 512\n{text}'


@pytest.fixture
def rig(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str], maker: Operator,
    broker: Broker,
) -> Iterator[Rig]:  # fmt: skip
    """The echo engine, on a link that is slow enough to be cut."""
    text = settings(maker, broker, maker.home / "v1", "max_rate = 100000\n")
    with (
        broker_rig.peer(broker, OPERATOR) as other,
        stokerd(private_bus, tmp_path, child_env, "--engine=echo", config=text) as daemon,
    ):
        ear = Ear(other)
        ear.listen()
        running = Rig(broker, FleetOperator.of_pki(maker.home / "pki"), ear, daemon, child_env)
        running.online()
        daemon.wait_ready()
        yield running


def content(rig: Rig) -> bytes:
    return Path(update_rig.served_path(rig.daemon)).read_bytes()


def fetching(rig: Rig) -> bool:
    facts = update_rig.facts(rig.daemon)
    if facts["State"] != "fetching" or facts["Job"] == "/":
        return False
    return bool(update_rig.look(rig.daemon, facts["Job"])["BytesOnWire"] > 0)


def test_a_signed_command_brings_a_delta_over_the_air(rig: Rig, maker: Operator) -> None:
    publish(maker, rig.broker)
    found = rig.do("update.check")
    assert [item["state"] for item in found["data"]["deployments"]] == ["new"], found
    identity, payload = rig.operator.command(DEVICE, "update.install", {"deployment": "chat"})
    rig.ear.say("cmd", payload)
    end = rig.ear.end(identity, 60.0)
    assert (end["state"], end["data"]) == ("succeeded", {"deployment": "chat", "version": 1}), end
    assert content(rig) == (maker.home / "v2").read_bytes()
    steps = [item["state"] for item in rig.ear.results(identity)]
    assert steps == ["accepted", "running", "succeeded"]
    told = until(
        lambda: (now := rig.ear.last("state")["update"])["state"] == "idle" and now,
        "the state that says so",
    )
    assert told["current"] == 1
    said = [item["what"] for item in update_rig.history(rig.daemon)]
    assert said.count("committed") == 1


def test_a_broker_that_dies_in_the_middle_of_a_pull_is_waited_for(
    rig: Rig, maker: Operator
) -> None:
    publish(maker, rig.broker)
    rig.broker.save()
    identity, payload = rig.operator.command(DEVICE, "update.install", {"deployment": "chat"})
    rig.ear.say("cmd", payload)
    until(lambda: fetching(rig), "chunks on their way")
    before = update_rig.facts(rig.daemon)["Job"]
    rig.broker.kill()
    time.sleep(1.0)
    assert content(rig) == (maker.home / "v1").read_bytes()
    rig.broker.start()
    rig.ear.peer.close()
    with broker_rig.peer(rig.broker, OPERATOR) as again:
        rig.ear.peer = again
        rig.ear.listen()
        end = rig.ear.end(identity, 60.0)
    assert end["state"] == "succeeded", end
    assert content(rig) == (maker.home / "v2").read_bytes()
    job = update_rig.look(rig.daemon, before)
    size = (maker.home / "1.delta").stat().st_size
    assert job["BytesOnWire"] < 2 * size  # what had come was not fetched again


def test_a_stokerd_that_dies_in_the_middle_of_a_pull_goes_on(rig: Rig, maker: Operator) -> None:
    publish(maker, rig.broker)
    identity, payload = rig.operator.command(DEVICE, "update.install", {"deployment": "chat"})
    rig.ear.say("cmd", payload)
    until(lambda: fetching(rig), "chunks on their way")
    rig.kill()
    end = rig.ear.end(identity, 60.0)
    assert end["state"] == "succeeded", end
    assert content(rig) == (maker.home / "v2").read_bytes()


def test_what_is_forged_does_nothing(rig: Rig, maker: Operator) -> None:
    publish(maker, rig.broker)
    stranger = FleetOperator(World())
    identity, payload = stranger.command(DEVICE, "update.install", {"deployment": "chat"})
    rig.ear.say("cmd", payload)
    changed = json.loads(rig.operator.command(DEVICE, "update.install", {"deployment": "chat"})[1])
    changed["payload"] = changed["payload"][:-8] + "AAAAAAA="
    rig.ear.say("cmd", json.dumps(changed).encode())
    until(lambda: rig.facts()["Forged"] == 2, "that it was counted")
    assert rig.quiet() == []
    assert rig.ear.results(identity) == []
    assert update_rig.facts(rig.daemon)["State"] == "idle"
    assert content(rig) == (maker.home / "v1").read_bytes()
    # Blobs that the broker, or somebody on it, has changed: not one of them is taken.
    for topic in _blobs(rig.broker):
        rig.ear.peer.publish(topic, b"forged", retain=True)
    end = rig.do("update.install", {"deployment": "chat"})
    assert (end["state"], end["code"]) == ("rejected", "not-found"), end
    assert update_rig.facts(rig.daemon)["Current"] == 0
    assert content(rig) == (maker.home / "v1").read_bytes()


def _blobs(broker: Broker) -> list[str]:
    with broker_rig.peer(broker, OPERATOR) as other:
        other.subscribe(f"{broker_rig.ROOT}/b/#")
        time.sleep(0.5)
        found = []
        while not other.messages.empty():
            found.append(other.messages.get().topic)
        return found


@pytest.mark.real
def test_a_real_model_is_changed_over_the_air_and_probed(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str], broker: Broker
) -> None:
    maker = Operator.found(tmp_path / "maker")
    model = random_model("qwen2-tiny")
    other_weights(model, maker.home / "v2")
    probe = '[health]\n[[health.probes]]\ntext = "plain words"\nmax_nats = 30.0\n'
    maker.bundle(1, model, maker.home / "v2", probe)
    publish(maker, broker)
    text = settings(maker, broker, model)
    with (
        broker_rig.peer(broker, OPERATOR) as other,
        stokerd(private_bus, tmp_path, child_env, config=text) as daemon,
    ):
        ear = Ear(other)
        ear.listen()
        rig = Rig(broker, FleetOperator.of_pki(maker.home / "pki"), ear, daemon, child_env)
        rig.online()
        daemon.wait_ready()
        end = rig.do("update.install", {"deployment": "chat"})
        assert end["state"] == "succeeded", end
        assert content(rig) == (maker.home / "v2").read_bytes()
        assert daemon.client.ask("Hello!")
