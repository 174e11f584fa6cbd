"""What waits for the runner to read, and what need not be read any more."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from stoker.core.frames import FrameDecoder
from stoker.drivers.framed_socket import FramedSocket
from stoker.errors import RequestTooLarge
from stoker.events.runner import Cancel, Generate, Ping

LONG = "x" * 1_000_000  # more than a socket holds


@pytest.fixture
def pair() -> Iterator[tuple[FramedSocket, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield FramedSocket(ours), theirs
    ours.close()
    theirs.close()


def heard(link: FramedSocket, peer: socket.socket) -> list[tuple[object, object]]:
    peer.setblocking(False)
    decoder, found = FrameDecoder(), list[tuple[object, object]]()
    while True:
        link.flush()
        try:
            bodies = decoder.feed(peer.recv(1 << 20))
        except BlockingIOError:
            assert decoder.pending_bytes == 0
            return found
        found += [(body["k"], body.get("job")) for body in bodies]


def test_a_cancelled_job_that_has_not_begun_to_leave_does_not_leave(
    pair: tuple[FramedSocket, socket.socket],
) -> None:
    link, peer = pair
    for job in ("first", "second", "third"):
        link.send(Generate(job=job, prompt=LONG, max_tokens=1))
    link.send(Cancel("second"))
    link.send(Ping(1))
    assert heard(link, peer) == [("generate", "first"), ("generate", "third"), ("ping", None)]


def test_a_cancelled_job_that_is_on_its_way_arrives_whole_and_then_its_cancel(
    pair: tuple[FramedSocket, socket.socket],
) -> None:
    link, peer = pair
    link.send(Generate(job="first", prompt=LONG, max_tokens=1))
    link.send(Cancel("first"))
    assert heard(link, peer) == [("generate", "first"), ("cancel", "first")]


def test_asking_and_going_away_faster_than_the_runner_reads_fills_no_memory(
    pair: tuple[FramedSocket, socket.socket],
) -> None:
    link, peer = pair
    link.send(Generate(job="running", prompt=LONG, max_tokens=1))
    for number in range(100):
        link.send(Generate(job=str(number), prompt=LONG, max_tokens=1))
        link.send(Cancel(str(number)))
    assert heard(link, peer) == [("generate", "running")]


def test_a_request_beyond_a_frame_is_refused_and_the_next_one_leaves(
    pair: tuple[FramedSocket, socket.socket],
) -> None:
    """A control character is six bytes of JSON."""
    link, peer = pair
    with pytest.raises(RequestTooLarge):
        link.send(Generate("large", prompt="\x01" * 3_000_000))
    link.send(Ping(1))
    assert heard(link, peer) == [("ping", None)]
