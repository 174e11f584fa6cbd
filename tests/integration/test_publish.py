"""stoker-ota publish to a real mosquitto, and a device that takes everything from there."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.tls_world import TlsWorld
from tests.fakes.update_bundles import Operator, ota
from tests.integration import broker_rig
from tests.integration.broker_rig import ROOT, peer, started
from tests.integration.broker_rig import Broker as Mosquitto
from tests.integration.fetch_rig import Fetch

from stoker_ota.cli import publishing
from stoker_ota.core import manifest
from stoker_ota.core.envelope import parse
from stoker_ota.core.routes import Route
from stoker_ota.core.topics import Topics
from stoker_ota.drivers.bundle_source import BundleFolder
from stoker_ota.drivers.fetcher import ChildFetcher
from stoker_ota.errors import Unavailable
from stoker_ota.values.fetching import Broker, Link, Tls

SIZE = 1 << 20


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Operator:
    made = Operator.found(tmp_path_factory.mktemp("operator"))
    content = bytearray(random.Random(5).randbytes(SIZE))
    (made.home / "v1").write_bytes(content)
    content[::50] = bytes(len(content[::50]))
    (made.home / "v2").write_bytes(content)
    made.bundle(1, made.home / "v1", made.home / "v2")
    return made


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with started(broker_rig.plain(tmp_path / "broker")) as found:
        yield found


def address(broker: Mosquitto) -> tuple[str, str]:
    return "--broker", f"mqtt://{broker.host}:{broker.port}"


def test_a_device_finds_documents_and_chunks_that_were_published(
    operator: Operator, broker: Mosquitto, tmp_path: Path
) -> None:
    said = ota("publish", "bundle-1", *address(broker), home=operator.home)
    assert said["documents"] == 2
    assert said["there"] == 0
    link = Link(broker=Broker(broker.host, broker.port, tls=None))
    copy = tmp_path / "copy"
    copy.mkdir()
    fetcher = ChildFetcher(tmp_path, lambda: link, base="mqtt:")
    assert fetcher.documents(0, copy) == 3
    for name in ("catalog.json", "manifests/chat.json", "trust/1.json"):
        original = (operator.home / "bundle-1" / name).read_bytes()
        assert BundleFolder(copy).read(name, 1 << 20) == original
    made = manifest.parse_manifest(
        parse((copy / "manifests/chat.json").read_bytes(), max_bytes=1 << 20).payload
    )
    (artifact,) = made.artifacts
    route = Route(artifact, artifact.deltas[0], fetch=True)
    fetch = Fetch(tmp_path / "device", link, base="mqtt:")
    assert fetch(route.wanted(made)) == (operator.home / "1.delta").read_bytes()


def test_what_the_broker_has_is_not_sent_again_and_damage_is_mended(
    operator: Operator, broker: Mosquitto
) -> None:
    first = ota("publish", "bundle-1", *address(broker), home=operator.home)
    again = ota("publish", "bundle-1", *address(broker), home=operator.home)
    assert (again["published"], again["there"]) == (0, first["published"])
    with peer(broker) as stranger:
        for message in _retained(operator)[:3]:
            stranger.publish(message, b"forged")
    mended = ota("publish", "bundle-1", *address(broker), home=operator.home)
    assert mended["published"] == 3


def test_a_broker_that_dies_meanwhile_gets_everything_in_the_end(
    operator: Operator, broker: Mosquitto
) -> None:
    timer = threading.Timer(1.2, broker.restart_hard)
    timer.start()
    ota("publish", "bundle-1", *address(broker), "--max-rate", "150K", home=operator.home)
    timer.join()
    ota("publish", "bundle-1", *address(broker), home=operator.home)  # what it forgot
    again = ota("publish", "bundle-1", *address(broker), home=operator.home)
    assert again["published"] == 0


def test_an_old_bundle_is_taken_away_but_for_what_another_needs(
    operator: Operator, broker: Mosquitto
) -> None:
    ota("publish", "bundle-1", *address(broker), home=operator.home)
    words = ("unpublish", "bundle-1", *address(broker))
    assert ota(*words, "--keep", "bundle-1", home=operator.home)["blobs"] == 0
    gone = ota(*words, home=operator.home)["blobs"]
    assert ota("publish", "bundle-1", *address(broker), home=operator.home)["published"] == gone


def test_an_operator_who_may_not_write_is_told_so(operator: Operator, tmp_path: Path) -> None:
    world = TlsWorld(tmp_path / "tls")
    with started(broker_rig.by_certificate(tmp_path / "broker", world)) as broker:
        where = ("--broker", f"mqtts://{broker.host}:{broker.port}", "--ca", str(world.ca))

        def words(name: str) -> tuple[str, ...]:
            pair = world.device(name)
            return (*where, "--certificate", str(pair.certificate), "--key", str(pair.key))

        with pytest.raises(AssertionError, match="Not authorized"):
            ota("publish", "bundle-1", *words("edge-1"), home=operator.home)
        assert ota("publish", "bundle-1", *words("operator"), home=operator.home)["published"]
        pair = world.device("edge-1")
        tls = Tls(str(world.ca), str(pair.certificate), str(pair.key))
        link = Link(broker=Broker(broker.host, broker.port, tls=tls))
        (tmp_path / "copy").mkdir()
        fetcher = ChildFetcher(tmp_path, lambda: link, base="mqtt:")
        assert fetcher.documents(0, tmp_path / "copy") == 3


def test_a_broker_without_a_catalog_is_told(broker: Mosquitto, tmp_path: Path) -> None:
    link = Link(broker=Broker(broker.host, broker.port, tls=None))
    with pytest.raises(Unavailable, match="no catalog"):
        ChildFetcher(tmp_path, lambda: link, base="mqtt:").documents(0, tmp_path / "copy")


def _retained(operator: Operator) -> list[str]:
    """Topics of blobs of the bundle."""
    return list(publishing.read(operator.home / "bundle-1", Topics(ROOT)).blobs)
