"""The poller and the pipe sink on real descriptors."""

from __future__ import annotations

import os
import threading
import time

from stoker.drivers.pipe_sink import PipeSink
from stoker.drivers.poller import EpollPoller
from stoker.ports.streams import Ready
from stoker.units import Seconds

NOW, SOON = Seconds(0.0), Seconds(5.0)


def test_a_closed_reader_is_seen_while_nothing_is_written() -> None:
    poller = EpollPoller()
    reader, writer = os.pipe()
    poller.watch(writer)
    assert list(poller.wait(NOW)) == []
    os.close(reader)
    (ready,) = poller.wait(SOON)
    assert (ready.fd, ready.hangup) == (writer, True)
    poller.unwatch(writer)
    os.close(writer)
    poller.close()


def test_writability_is_reported_only_when_asked_for() -> None:
    poller = EpollPoller()
    reader, writer = os.pipe()
    poller.watch(writer)
    assert list(poller.wait(NOW)) == []
    poller.watch(writer, writable=True)
    assert list(poller.wait(SOON)) == [Ready(writer, writable=True)]
    poller.watch(writer)
    assert list(poller.wait(NOW)) == []
    poller.close()
    os.close(reader)
    os.close(writer)


def test_wake_from_another_thread_ends_a_wait() -> None:
    poller = EpollPoller()
    threading.Timer(0.05, poller.wake).start()
    began = time.monotonic()
    assert list(poller.wait(SOON)) == []
    assert time.monotonic() - began < 3
    assert list(poller.wait(NOW)) == []  # one wake, one end
    poller.close()
    poller.wake()  # after the end: harmless


def test_unwatching_what_is_unknown_or_closed_is_harmless() -> None:
    poller = EpollPoller()
    reader, writer = os.pipe()
    poller.watch(reader, readable=True)
    os.close(reader)
    poller.unwatch(reader)
    poller.unwatch(12345)
    os.close(writer)
    poller.close()


def test_a_full_pipe_keeps_the_rest_and_loses_no_byte() -> None:
    reader, writer = os.pipe()
    sink = PipeSink(writer)
    sent = b"".join(b"%06d\n" % number for number in range(40_000))
    for at in range(0, len(sent), 1000):
        sink.write(sent[at : at + 1000])
    assert 0 < sink.pending_bytes < len(sent)
    got = b""
    while sink.pending_bytes:
        got += os.read(reader, 30_000)
        sink.flush()
    sink.close()
    while part := os.read(reader, 65_536):
        got += part
    assert got == sent
    os.close(reader)


def test_a_gone_reader_breaks_the_sink_without_an_exception() -> None:
    reader, writer = os.pipe()
    sink = PipeSink(writer)
    os.close(reader)
    sink.write(b"x")
    assert sink.broken
    assert sink.pending_bytes == 0
    sink.write(b"more")
    assert sink.flush() == 0
    sink.close()
    sink.close()
