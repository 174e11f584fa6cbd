"""Pulling blobs by the real child from a real mosquitto that dies, forgets, lies and denies."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.old_broker import old_broker
from tests.fakes.tls_world import TlsWorld
from tests.fakes.web_server import WebServer, serving
from tests.integration import broker_rig
from tests.integration.broker_rig import OPERATOR, PASSWORD, ROOT, peer, started
from tests.integration.broker_rig import Broker as Mosquitto
from tests.integration.fetch_rig import Fetch, Thing, mounted

from stoker_ota.errors import NoSpace, Unavailable
from stoker_ota.values.fetching import Broker, Link, Tls

CHUNK = 61_440


def publish(broker: Mosquitto, thing: Thing, *leave: str, user: str = "") -> None:
    """All blobs of it but those named."""
    with peer(broker, user) as operator:
        for name, blob in thing.blobs().items():
            if name not in leave:
                assert operator.publish(f"{ROOT}/b/{name}", blob) == "Success"


def device(broker: Mosquitto) -> Link:
    if broker.unix:
        return Link(broker=Broker(path=str(broker.path), tls=None))
    return Link(broker=Broker(broker.host, broker.port, client_id="edge-1", tls=None))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with started(broker_rig.plain(tmp_path / "broker")) as found:
        yield found


@pytest.fixture
def fetch(tmp_path: Path, broker: Mosquitto) -> Fetch:
    return Fetch(tmp_path / "device", device(broker))


def chunk_names(thing: Thing) -> list[str]:
    index = thing.index
    return [index.digest(n).hex() for n in range(index.count)]


def test_an_object_is_pulled_blob_by_blob(broker: Mosquitto, fetch: Fetch) -> None:
    thing = Thing.made(size=3_000_000, chunk=CHUNK)
    publish(broker, thing)
    assert fetch(thing.wanted("mqtt:")) == thing.data
    blobs = sum(len(blob) for blob in thing.blobs().values())
    assert fetch.wire_bytes == blobs  # each once
    assert fetch.told[-1] == (len(thing.data), len(thing.data))


def test_equal_chunks_are_fetched_once(broker: Mosquitto, fetch: Fetch) -> None:
    thing = Thing(bytes(20 * CHUNK) + b"end", CHUNK)
    publish(broker, thing)
    assert fetch(thing.wanted("mqtt:")) == thing.data
    assert fetch.wire_bytes < 3 * CHUNK


@pytest.mark.parametrize("silent", [False, True])
def test_a_broker_that_knows_no_version_5_is_spoken_to_in_3_1_1(
    tmp_path: Path, silent: bool
) -> None:
    thing = Thing.made(size=200_000, chunk=CHUNK)
    retained = {f"{ROOT}/b/{name}": blob for name, blob in thing.blobs().items()}
    with old_broker(retained, silent=silent) as port:
        link = Link(broker=Broker("localhost", port, tls=None))
        assert Fetch(tmp_path / "device", link)(thing.wanted("mqtt:")) == thing.data


def test_a_subscription_that_is_denied_is_given_to_the_next_source_at_once(
    tmp_path: Path,
) -> None:
    thing = Thing.made(size=600_000, chunk=CHUNK)
    retained = {f"{ROOT}/b/{name}": blob for name, blob in thing.blobs().items()}
    second = f"{ROOT}/b/{chunk_names(thing)[1]}"
    with old_broker(retained, denied=[second]) as port:
        link = Link(broker=Broker("localhost", port, tls=None))
        fetch = Fetch(tmp_path / "device", link)
        begin_s = time.monotonic()
        with pytest.raises(Unavailable, match="1 chunks are not there"):
            fetch(thing.wanted("mqtt:"))
        assert time.monotonic() - begin_s < 10  # no time was waited for it


def test_an_endless_message_of_an_old_broker_is_no_blob(tmp_path: Path) -> None:
    """Version 3.1.1 has no limit of a packet's size: the child's memory has."""
    thing = Thing.made(size=200_000, chunk=CHUNK)
    retained = {f"{ROOT}/b/{name}": blob for name, blob in thing.blobs().items()}
    retained[f"{ROOT}/b/{chunk_names(thing)[0]}"] = bytes(20 << 20)
    with old_broker(retained) as port:
        link = Link(broker=Broker("localhost", port, tls=None))
        fetch = Fetch(tmp_path / "device", link)
        with pytest.raises(Unavailable, match="1 chunks are not there"):
            fetch(thing.wanted("mqtt:"))


def test_a_unix_socket_will_do(tmp_path: Path) -> None:
    thing = Thing.made(size=200_000, chunk=CHUNK)
    with started(broker_rig.by_socket(tmp_path / "broker")) as broker:
        publish(broker, thing)
        assert Fetch(tmp_path / "device", device(broker))(thing.wanted("mqtt:")) == thing.data


def test_with_tls_a_certificate_and_the_fleet_s_acl(tmp_path: Path) -> None:
    world, thing = TlsWorld(tmp_path / "tls"), Thing.made(size=400_000, chunk=CHUNK)
    with started(broker_rig.by_certificate(tmp_path / "broker", world)) as broker:
        publish(broker, thing)
        pair = world.device("edge-1")
        tls = Tls(str(world.ca), str(pair.certificate), str(pair.key))
        link = Link(broker=Broker(broker.host, broker.port, client_id="edge-1", tls=tls))
        assert Fetch(tmp_path / "1", link)(thing.wanted("mqtt:")) == thing.data
        stranger = TlsWorld(tmp_path / "other")
        bad = replace(tls, ca=str(stranger.ca))
        with pytest.raises(Unavailable, match=r"(?i)certificate"):
            Fetch(tmp_path / "2", Link(broker=Broker(broker.host, broker.port, tls=bad)))(
                thing.wanted("mqtt:")
            )


def test_with_a_password_and_without_the_right_one(tmp_path: Path) -> None:
    thing = Thing.made(size=200_000, chunk=CHUNK)
    with started(broker_rig.by_password(tmp_path / "broker", "edge-1")) as broker:
        publish(broker, thing, user=OPERATOR)
        (tmp_path / "word").write_text(f"{PASSWORD}\n")
        (tmp_path / "wrong").write_text("x\n")
        good = Broker(
            broker.host, broker.port, username="edge-1", tls=None,
            password_file=str(tmp_path / "word"),
        )  # fmt: skip
        assert Fetch(tmp_path / "1", Link(broker=good))(thing.wanted("mqtt:")) == thing.data
        bad = replace(good, password_file=str(tmp_path / "wrong"))
        with pytest.raises(Unavailable, match=r"(?i)not authori"):
            Fetch(tmp_path / "2", Link(broker=bad))(thing.wanted("mqtt:"))


def test_the_broker_is_killed_at_random_while_a_device_pulls(
    broker: Mosquitto, fetch: Fetch
) -> None:
    thing = Thing.made(size=6_000_000, chunk=CHUNK)
    publish(broker, thing)
    broker.save()
    stop = threading.Event()
    dice = random.Random(3)

    def killer() -> None:
        for _ in range(3):
            if stop.wait(dice.uniform(0.4, 1.2)):
                return
            broker.restart_hard()

    thread = threading.Thread(target=killer)
    thread.start()
    try:
        assert fetch(thing.wanted("mqtt:", max_rate=2_000_000)) == thing.data
    finally:
        stop.set()
        thread.join()
    assert fetch.wire_bytes < 1.3 * len(thing.data)


def test_a_broker_that_has_forgotten_everything_is_left_for_the_web(
    broker: Mosquitto, fetch: Fetch, tmp_path: Path
) -> None:
    """Chunk by chunk: what the broker had is not fetched again."""
    thing = Thing.made(size=1_000_000, chunk=CHUNK)
    leave = chunk_names(thing)[3:]
    publish(broker, thing, *leave)
    world = TlsWorld(tmp_path / "tls")
    with serving(WebServer(tmp_path / "www", world)) as server:
        thing.put(server.folder)
        fetch.link = replace(fetch.link, tls=Tls(ca=str(world.ca)), proxy="none")
        assert fetch(thing.wanted("mqtt:", server.url("thing"))) == thing.data
        assert server.ranges_asked() == [f"bytes={3 * CHUNK}-{len(thing.data) - 1}"]


def test_forged_truncated_and_oversized_blobs_are_never_used(
    broker: Mosquitto, fetch: Fetch
) -> None:
    thing = Thing.made(size=500_000, chunk=CHUNK)
    names = chunk_names(thing)
    publish(broker, thing)
    with peer(broker) as stranger:
        stranger.publish(f"{ROOT}/b/{names[0]}", thing.data[: CHUNK - 1])
        stranger.publish(f"{ROOT}/b/{names[1]}", thing.data[:CHUNK])
        stranger.publish(f"{ROOT}/b/{names[2]}", bytes(400_000))
        stranger.publish(f"{ROOT}/b/{names[3]}", b"")
    with pytest.raises(Unavailable, match="4 chunks are not there"):
        fetch(thing.wanted("mqtt:"))
    assert fetch.journal.exists()
    publish(broker, thing)
    assert fetch(thing.wanted("mqtt:")) == thing.data
    assert fetch.wire_bytes <= 4 * CHUNK + 4096  # only those four


def test_a_denied_topic_is_told(tmp_path: Path) -> None:
    thing = Thing.made(size=100_000, chunk=CHUNK)
    with started(Mosquitto(tmp_path / "broker", acl="topic read other/#\n")) as broker:
        fetch = Fetch(tmp_path / "device", device(broker))
        with pytest.raises(Unavailable, match=r"not there|denie|nothing came|Not authorized"):
            fetch(thing.wanted("mqtt:"))


def test_without_a_broker_it_says_so_and_without_chunks_too(
    broker: Mosquitto, fetch: Fetch, tmp_path: Path
) -> None:
    thing = Thing.made(size=100_000, chunk=CHUNK)
    with pytest.raises(Unavailable, match="no source"):
        Fetch(tmp_path / "2", Link())(thing.wanted("mqtt:"))
    with pytest.raises(Unavailable, match="in chunks only"):
        fetch(thing.wanted("mqtt:", chunked=False))


def test_the_rate_is_kept(broker: Mosquitto, fetch: Fetch) -> None:
    thing = Thing.made(size=1_000_000, chunk=CHUNK)
    publish(broker, thing)
    begin_s = time.monotonic()
    assert fetch(thing.wanted("mqtt:", max_rate=400_000)) == thing.data
    assert time.monotonic() - begin_s > (len(thing.data) - 4 * CHUNK) / 400_000


def test_a_full_disk_is_told_before_a_chunk_is_fetched(
    broker: Mosquitto, fetch: Fetch, tmp_path: Path
) -> None:
    thing = Thing.made(size=2 << 20, chunk=CHUNK)
    publish(broker, thing)
    with mounted(tmp_path / "disk", 1 << 20) as disk:
        full = Fetch(disk, fetch.link)
        with pytest.raises(NoSpace):
            full(thing.wanted("mqtt:"))


def test_a_bundle_s_addresses_are_blobs_of_a_broker_that_is_the_source(
    broker: Mosquitto, fetch: Fetch
) -> None:
    thing = Thing.made(size=100_000, chunk=CHUNK)
    publish(broker, thing)
    fetch.base = "mqtt:"
    assert fetch(thing.wanted(f"file:blobs/{thing.sha256}")) == thing.data
