"""The operator's connection: brokers that know MQTT 3.1.1 only, and how each says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.old_gate import OldGate
from tests.integration import broker_rig
from tests.integration.broker_rig import Broker

from stoker_ota.drivers.mqtt_operator import OperatorLink
from stoker_ota.errors import Unavailable
from stoker_ota.values import fetching


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with broker_rig.started(broker_rig.plain(tmp_path / "broker")) as running:
        yield running


def at(port: int) -> OperatorLink:
    return OperatorLink(fetching.Broker("127.0.0.1", port, tls=None, client_id="operator"))


def test_a_broker_that_knows_3_1_1_only_is_spoken_to_in_that(broker: Broker) -> None:
    with OldGate(broker.port) as door, at(door.port) as link:
        assert door.levels == [5, 4]
        link.publish("stoker/1/g/blue/desired", b"state", retain=True)
        link.publish("stoker/1/d/a/cmd", b"command", retain=False, expiry_s=60)
        assert link.kept("stoker/1/g/blue/desired") == b"state"


def test_a_broker_that_knows_both_is_spoken_to_in_5(broker: Broker) -> None:
    with at(broker.port) as link:
        link.publish("stoker/1/d/a/cmd", b"command", retain=False, expiry_s=60)
        assert link.kept("stoker/1/nothing", 0.2) == b""


def test_nobody_there_is_said_at_once() -> None:
    with pytest.raises(Unavailable, match="cannot reach"), at(broker_rig.free_port()):
        pass
