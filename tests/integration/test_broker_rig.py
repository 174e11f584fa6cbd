"""The brokers that other tests use are what they say: open, closed, restarted with their blobs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fakes.mqtt_peer import Peer
from tests.fakes.tls_world import TlsWorld
from tests.integration import broker_rig
from tests.integration.broker_rig import PASSWORD, ROOT, peer, started


def test_what_was_saved_outlives_a_kill_and_what_was_not_does_not(tmp_path: Path) -> None:
    with started(broker_rig.plain(tmp_path)) as broker:
        with peer(broker) as operator:
            assert operator.publish(f"{ROOT}/b/1", b"kept") == "Success"
            broker.save()
            operator.publish(f"{ROOT}/b/2", b"lost")
        broker.kill()
        broker.start()
        with peer(broker) as operator:
            assert operator.retained(f"{ROOT}/b/1") == b"kept"
            assert operator.retained(f"{ROOT}/b/2", 0.2) is None


def test_a_unix_socket_serves_too(tmp_path: Path) -> None:
    with started(broker_rig.by_socket(tmp_path)) as broker, peer(broker) as operator:
        operator.publish(f"{ROOT}/b/1", b"x")
        assert operator.retained(f"{ROOT}/b/1") == b"x"


def test_passwords_are_asked_for_and_the_acl_holds(tmp_path: Path) -> None:
    with started(broker_rig.by_password(tmp_path, "edge-1")) as broker:
        with pytest.raises(AssertionError, match="refused"):
            Peer((broker.host, broker.port), "edge-1", "wrong").connect()
        with peer(broker, "operator") as operator, peer(broker, "edge-1") as device:
            assert operator.publish(f"{ROOT}/b/1", b"blob") == "Success"
            assert device.publish(f"{ROOT}/b/1", b"forged") == "Not authorized"
            assert device.retained(f"{ROOT}/b/1") == b"blob"
        assert PASSWORD not in (tmp_path / "passwords").read_text()


def test_a_certificate_is_the_user(tmp_path: Path) -> None:
    world = TlsWorld(tmp_path / "tls")
    with (
        started(broker_rig.by_certificate(tmp_path / "broker", world)) as broker,
        peer(broker, "operator") as operator,
        peer(broker, "edge-1") as device,
    ):
        operator.publish(f"{ROOT}/b/1", b"blob")
        assert device.retained(f"{ROOT}/b/1") == b"blob"
        assert device.publish(f"{ROOT}/d/edge-1/state", b"{}") == "Success"
        assert device.publish(f"{ROOT}/d/edge-2/state", b"{}") == "Not authorized"
