"""``stokerctl fleet test`` on a real broker: what is wrong is named, and what to do about it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from tests.fakes.tls_world import DAY, TlsWorld
from tests.integration import broker_rig
from tests.integration.broker_rig import ACL, Broker
from tests.integration.fleet_rig import DEVICE

from stoker.core.fleet_words import WRITTEN
from stoker.drivers import mqtt_probe
from stoker.drivers.mqtt_dial import BrokerAccess
from stoker.events import broker as addresses
from stoker.events.fleet import ProbeStep
from stoker_ota.core.topics import Topics

TOPICS = Topics()
READS = tuple(TOPICS.device(DEVICE, leaf) for leaf in ("desired", "cmd"))
WRITES = tuple(TOPICS.device(DEVICE, *leaf) for leaf in WRITTEN)


@pytest.fixture
def world(tmp_path: Path) -> TlsWorld:
    return TlsWorld(tmp_path / "tls")


def probed(broker: Broker, life: timedelta = DAY) -> dict[str, ProbeStep]:
    assert broker.tls is not None
    pair = broker.tls.device(DEVICE, life)
    files = (str(broker.tls.ca), str(pair.certificate), str(pair.key))
    access = BrokerAccess(addresses.parse(f"mqtts://localhost:{broker.port}"), *files)
    return {step.name: step for step in mqtt_probe.run(access, DEVICE, READS, WRITES)}


def test_an_expired_certificate_of_ones_own_is_named_first(tmp_path: Path, world: TlsWorld) -> None:
    with broker_rig.started(broker_rig.by_certificate(tmp_path / "b", world)) as broker:
        found = probed(broker, timedelta(days=-2))
    assert next(iter(found)) == "certificate"
    assert found["certificate"].outcome == "failed"
    (wrong,) = (
        step for step in found.values() if step.outcome == "failed" and step.name != "certificate"
    )
    assert "expired" in wrong.hint
    assert "authority" not in wrong.hint


def test_rules_that_let_a_device_read_nothing_are_noticed(tmp_path: Path, world: TlsWorld) -> None:
    broker = broker_rig.by_certificate(tmp_path / "b", world)
    broker.acl = "".join(f"{row}\n" for row in ACL.split("\n") if " read " not in row)
    with broker_rig.started(broker):
        found = probed(broker)
    assert found["subscribe"].outcome == "ok"  # Mosquitto's acl_file grants all, and is silent
    assert found["publish"].outcome == "ok"
    assert found["loop-back"].outcome == "failed"
    assert "ACL" in found["loop-back"].hint


@pytest.mark.parametrize("leaf", ["result", "state", "status", "telemetry", "up/+/+"])
def test_each_topic_that_must_be_written_is_tried(
    tmp_path: Path, world: TlsWorld, leaf: str
) -> None:
    broker = broker_rig.by_certificate(tmp_path / "b", world)
    broker.acl = ACL.replace(f"pattern write stoker/1/d/%u/{leaf}\n", "")
    assert broker.acl != ACL
    with broker_rig.started(broker):
        found = probed(broker)
    assert found["publish"].outcome == "failed"
    assert f"/{leaf.split('/', maxsplit=1)[0]}" in found["publish"].text


def test_a_test_of_a_device_with_a_long_id_throws_nobody_out() -> None:
    device = "x" * 64
    assert mqtt_probe.client_id(device) != device
    assert len(mqtt_probe.client_id(device)) <= 64
