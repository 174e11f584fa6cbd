"""Fetching over HTTPS by the real child from a real server that cuts, lies, moves and waits."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.web_server import Fault, WebServer
from tests.integration.fetch_rig import CHUNK, SIZE, Fetch, Thing, mounted

from stoker_ota.core import chunks, fetch_request, have
from stoker_ota.errors import Cancelled, NoSpace, Unavailable
from stoker_ota.values.fetching import ObjectRequest


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", 1 << 20) as disk:
        yield disk


def test_an_object_comes_by_ranges_of_its_chunks(
    server: WebServer, thing: Thing, fetch: Fetch
) -> None:
    assert fetch(thing.wanted(server.url("thing"))) == thing.data
    assert server.ranges_asked() == [f"bytes=0-{SIZE - 1}"]
    assert fetch.told[-1] == (SIZE, SIZE)
    assert SIZE <= fetch.wire_bytes <= SIZE + 2 * len(thing.pages)


@pytest.mark.parametrize("chunked", [True, False])
def test_a_server_without_ranges_serves_too(
    server: WebServer, thing: Thing, fetch: Fetch, chunked: bool
) -> None:
    server.ranges = False
    server.faults = deque([Fault()] * chunked + [Fault(cut=100_000)])
    try:
        found = fetch(thing.wanted(server.url("thing"), chunked=chunked))
    except Unavailable:
        assert not chunked
        found = fetch(thing.wanted(server.url("thing"), chunked=chunked))
    assert found == thing.data


def test_a_connection_that_breaks_off_is_gone_on_with_where_it_broke(
    server: WebServer, thing: Thing, fetch: Fetch
) -> None:
    server.faults = deque([Fault(), Fault(cut=50_000), Fault(cut=3 * CHUNK)])
    assert fetch(thing.wanted(server.url("thing"))) == thing.data
    begins = [int(asked[6:].split("-")[0]) for asked in server.ranges_asked()]
    assert begins == [0, 6 * CHUNK, 9 * CHUNK]
    assert fetch.wire_bytes < SIZE + 2 * CHUNK + len(thing.pages)


def test_what_came_before_a_failure_is_not_fetched_again(
    server: WebServer, thing: Thing, fetch: Fetch
) -> None:
    server.faults = deque([Fault(), Fault(cut=100_000), Fault(status=403)])
    with pytest.raises(Unavailable, match="403"):
        fetch(thing.wanted(server.url("thing")))
    assert fetch.journal.exists()
    server.asked.clear()
    assert fetch(thing.wanted(server.url("thing"))) == thing.data
    assert server.ranges_asked() == [f"bytes={12 * CHUNK}-{SIZE - 1}"]


def test_a_lying_server_is_left_and_the_next_one_goes_on(
    server: WebServer, thing: Thing, fetch: Fetch
) -> None:
    thing.put(server.folder, "mirror")
    server.faults = deque([Fault(), Fault(flip=50_000)])
    found = fetch(thing.wanted(server.url("thing"), server.url("mirror")))
    assert found == thing.data
    assert server.asked[-1] == ("/mirror", f"bytes={6 * CHUNK}-{SIZE - 1}")


def test_digests_that_lie_are_not_believed(server: WebServer, thing: Thing, fetch: Fetch) -> None:
    thing.put(server.folder, "mirror")
    server.faults = deque([Fault(flip=40)])
    assert fetch(thing.wanted(server.url("thing"), server.url("mirror"))) == thing.data
    assert [path for path, _ in server.asked] == ["/thing.chunks", "/mirror.chunks", "/thing"]


def test_a_lie_without_digests_is_dropped_and_the_next_server_begins_anew(
    server: WebServer, thing: Thing, fetch: Fetch
) -> None:
    thing.put(server.folder, "mirror")
    server.faults = deque([Fault(flip=5)])
    found = fetch(thing.wanted(server.url("thing"), server.url("mirror"), chunked=False))
    assert found == thing.data
    server.faults = deque([Fault(flip=5)])
    with pytest.raises(Unavailable, match="other bytes"):
        Fetch(fetch.folder / "2", fetch.link)(thing.wanted(server.url("thing"), chunked=False))


def test_without_digests_the_whole_is_fetched_and_gone_on_with(
    server: WebServer, thing: Thing, fetch: Fetch
) -> None:
    (server.folder / "thing.chunks").unlink()
    server.faults = deque([Fault(), Fault(cut=70_000)])
    with pytest.raises(Unavailable, match="ended after"):
        fetch(thing.wanted(server.url("thing")))
    assert fetch.part.stat().st_size == 70_000
    assert fetch(thing.wanted(server.url("thing"))) == thing.data
    assert server.asked[-1] == ("/thing", f"bytes=70000-{SIZE - 1}")


def test_a_file_that_changed_in_between_is_begun_anew(
    server: WebServer, thing: Thing, fetch: Fetch
) -> None:
    other = Thing.made(2)
    server.faults = deque([Fault(cut=70_000)])
    with pytest.raises(Unavailable):
        fetch(thing.wanted(server.url("thing"), chunked=False))
    other.put(server.folder)
    assert fetch(other.wanted(server.url("thing"), chunked=False)) == other.data


def test_a_file_of_another_size_is_refused(server: WebServer, thing: Thing, fetch: Fetch) -> None:
    for name, data in (("short", thing.data[:-1]), ("long", thing.data + b"x")):
        (server.folder / name).write_bytes(data)
        (server.folder / f"{name}.chunks").write_bytes(thing.pages)
        for chunked in (True, False):
            with pytest.raises(Unavailable, match=str(len(data))):
                fetch(thing.wanted(server.url(name), chunked=chunked))
    server.lengths = False
    with pytest.raises(Unavailable, match="more than"):
        fetch(thing.wanted(server.url("long"), chunked=False))


def test_a_busy_server_is_asked_again_when_it_says_and_a_very_busy_one_later(
    server: WebServer, thing: Thing, fetch: Fetch
) -> None:
    server.faults = deque([Fault(status=503, headers=(("Retry-After", "1"),)), Fault(status=429)])
    begin_s = time.monotonic()
    assert fetch(thing.wanted(server.url("thing"))) == thing.data
    assert time.monotonic() - begin_s >= 2.0  # what it said, and our own for want of a word
    server.faults = deque([Fault(status=503, headers=(("Retry-After", "3600"),))] * 2)
    with pytest.raises(Unavailable, match="busy"):
        Fetch(fetch.folder / "2", fetch.link)(thing.wanted(server.url("thing")))


def test_a_missing_file_and_a_dead_server_are_told_with_their_reasons(
    server: WebServer, thing: Thing, fetch: Fetch
) -> None:
    dead = "https://localhost:1/thing"
    with pytest.raises(Unavailable) as caught:
        fetch(thing.wanted(server.url("none"), dead))
    assert "none: it is not there" in caught.value.message
    assert "refused" in caught.value.message
    assert fetch(thing.wanted(dead, server.url("thing"))) == thing.data


def test_packed_bytes_and_answers_that_are_no_answer_are_refused(
    server: WebServer, thing: Thing, fetch: Fetch
) -> None:
    server.faults = deque([Fault(headers=(("Content-Encoding", "gzip"),))])
    with pytest.raises(Unavailable, match="packed"):
        fetch(thing.wanted(server.url("thing"), chunked=False))
    for status in (206, 304, 401, 500):
        server.faults = deque([Fault(status=status)] * 3)
        with pytest.raises(Unavailable):
            Fetch(fetch.folder / str(status), fetch.link)(
                thing.wanted(server.url("thing"), chunked=False)
            )


def test_the_rate_is_kept(server: WebServer, thing: Thing, fetch: Fetch) -> None:
    begin_s = time.monotonic()
    assert fetch(thing.wanted(server.url("thing"), max_rate=100_000)) == thing.data
    assert time.monotonic() - begin_s > (SIZE - 64 * 1024) / 100_000


def test_a_child_that_is_killed_at_random_leaves_nothing_wrong(
    server: WebServer, fetch: Fetch
) -> None:
    """Every other one is asked to end, and writes down what it has; the next one, killed, must
    not have made a lie of that.
    """
    thing = Thing.made(size=3_000_000)
    thing.put(server.folder)
    dice = random.Random(9)
    wanted = thing.wanted(server.url("thing"), max_rate=1_500_000)
    claims = 0
    for turn in range(6):
        request = ObjectRequest(str(fetch.part), wanted, fetch.link)
        child = subprocess.Popen(
            [sys.executable, "-m", "stoker_ota.fetch"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(fetch_request.encode(request))
        child.stdin.close()
        child.stdout.readline()  # it has begun
        time.sleep(dice.uniform(0.1, 0.4))
        child.kill() if turn % 2 else child.terminate()
        child.wait()
        child.stdout.close()
        claims = max(claims, _claims(fetch, thing))
    assert claims > 10
    assert fetch(replace(wanted, max_rate=0)) == thing.data


def _claims(fetch: Fetch, thing: Thing) -> int:
    """How many chunks the journal claims; each is there."""
    if not fetch.journal.exists():
        return 0
    index, data = thing.index, fetch.part.read_bytes()
    root = chunks.of_index(index).root
    claimed = have.decode(fetch.journal.read_bytes(), root, index.count)
    for number in range(index.count):
        if number in claimed:
            piece = data[index.offset(number) :][: index.length(number)]
            assert chunks.right(index, number, piece)
    return claimed.held


def test_a_cancelled_fetch_keeps_what_it_has(server: WebServer, fetch: Fetch) -> None:
    thing = Thing.made(size=2_000_000)
    thing.put(server.folder)
    fetch.cancelled = lambda: bool(fetch.told) and fetch.told[-1][0] > 100_000
    with pytest.raises(Cancelled):
        fetch(thing.wanted(server.url("thing"), max_rate=400_000))
    fetch.cancelled = lambda: False
    server.asked.clear()
    assert fetch(thing.wanted(server.url("thing"))) == thing.data
    (asked,) = server.ranges_asked()
    assert int(asked[6:].split("-")[0]) > 50_000


def test_a_full_disk_is_told_before_a_byte_of_it_is_fetched(
    server: WebServer, thing: Thing, fetch: Fetch, small_disk: Path
) -> None:
    full = Fetch(small_disk, fetch.link)
    big = Thing.made(size=2 << 20)
    big.put(server.folder)
    with pytest.raises(NoSpace):
        full(big.wanted(server.url("thing")))
    assert server.ranges_asked() == []
    with pytest.raises(NoSpace):
        full(big.wanted(server.url("thing"), chunked=False))
    full.part.unlink()
    thing.put(server.folder)
    assert full(thing.wanted(server.url("thing"))) == thing.data


def test_a_bundle_s_own_addresses_are_found_below_the_source(
    server: WebServer, thing: Thing, fetch: Fetch
) -> None:
    thing.put(server.folder / "updates/blobs", thing.sha256)
    fetch.base = server.url("updates/")
    assert fetch(thing.wanted(f"file:blobs/{thing.sha256}")) == thing.data
    fetch.base = ""
    with pytest.raises(Unavailable, match="no source"):
        fetch(thing.wanted(f"file:blobs/{thing.sha256}"))
