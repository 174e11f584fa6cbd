"""The same calls for asyncio: nothing blocks the event loop.

Calls wait in threads and not for GLib's callbacks, of which PyGObject 3.42 leaks 80 bytes
each; pipes are read by the event loop itself. Only what a server in the middle needs is
here: calls, and streams read in batches.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from stoker_client import handover
from stoker_client.bus import AGENT_PATH, BUS_NAME, Bus, variants
from stoker_client.errors import StokerClientError
from stoker_client.records import Lines, Record, cut_off, parse
from stoker_client.requests import Pairs

INFERENCE: Final = "org.stoker.Inference1"
PROPERTIES: Final = "org.freedesktop.DBus.Properties"
MOST_CALLS: Final = 64  # that wait at a time; all but Embed are answered at once
_CHUNK_BYTES: Final = 64 << 10


class AsyncStoker:
    """A connection to the agent, made at the first call and again when the bus went away.

    ``address`` as in ``Stoker``. Use it from one event loop.
    """

    def __init__(self, address: str | None = None) -> None:
        self._bus = Bus(address)
        self._threads = ThreadPoolExecutor(MOST_CALLS, thread_name_prefix="stoker-client")
        self._connecting = threading.Lock()
        self._calls: set[Any] = set()  # a Gio.Cancellable each
        self._closed = False
        self._streams: set[AsyncStream] = set()

    async def stream(self, request: Pairs, options: Pairs) -> AsyncStream:
        """CreateJob with the pairs as they are; see org.stoker.Inference1.xml for the keys.

        A large request goes as a memory file, not through the bus.
        """
        if handover.worth_it(request):
            file = handover.sealed(request)
            try:
                fd = await self._create("CreateJobFd", "(ha{sv})", lambda: 0, options, (file,))
            finally:
                os.close(file)
        else:
            fd = await self._create("CreateJob", "(a{sv}a{sv})", lambda: variants(request), options)
        stream = AsyncStream(fd, self._streams.discard)
        self._streams.add(stream)
        return stream

    async def _create(
        self, method: str, kind: str, request: Callable[[], object], options: Pairs,
        sent: Sequence[int] = (),
    ) -> int:  # fmt: skip
        body = lambda: (request(), variants(options))  # noqa: E731
        reply = await self._call(AGENT_PATH, INFERENCE, method, kind, body, "(oh)", 25.0, sent)
        return int(reply[1])

    async def embed(
        self, texts: Sequence[str], options: Pairs, timeout_s: float = 300.0
    ) -> tuple[list[list[float]], int]:
        """(a vector for each text, tokens read)."""
        body = lambda: (list(texts), variants(options))  # noqa: E731
        return await self._call(  # type: ignore[no-any-return]
            AGENT_PATH, INFERENCE, "Embed", "(asa{sv})", body, "(aadu)", timeout_s
        )

    async def models(self) -> list[dict[str, Any]]:
        found = await self._call(AGENT_PATH, INFERENCE, "ListModels", "()", tuple, "(aa{sv})", 25.0)
        return [dict(item) for item in found[0]]

    async def properties(self) -> dict[str, Any]:
        """Of Inference1: State, LoadProgress, Model, QueueDepth, ActiveJobs, …"""
        body = lambda: (INFERENCE,)  # noqa: E731
        found = await self._call(AGENT_PATH, PROPERTIES, "GetAll", "(s)", body, "(a{sv})", 5.0)
        return dict(found[0])

    def close(self) -> None:
        """End all streams and calls with ``unavailable`` and leave the bus."""
        self._closed = True
        for stream in tuple(self._streams):
            stream.abandon(_closing())
        for cancel in tuple(self._calls):
            cancel.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._bus.close()

    async def _call(
        self, path: str, interface: str, method: str, kind: str,
        body: Callable[[], tuple[Any, ...]], out: str, timeout_s: float, sent: Sequence[int] = (),
    ) -> Any:  # fmt: skip
        """The reply's values; an ``h`` among them is a descriptor, which is the caller's."""
        from gi.repository import Gio, GLib

        cancel, files = Gio.Cancellable.new(), None
        if sent:
            files = Gio.UnixFDList.new()
            for each in sent:
                files.append(each)  # which duplicates it: the caller may close its own

        def work() -> tuple[Any, ...]:
            try:
                with self._connecting:
                    con = self._bus.connected().con
                reply, fds = con.call_with_unix_fd_list_sync(
                    BUS_NAME, path, interface, method, GLib.Variant(kind, body()),
                    GLib.VariantType.new(out), 0, round(timeout_s * 1000), files, cancel,
                )  # fmt: skip
            except Exception as fault:
                raise self._bus.typed(fault) from fault
            return _with_descriptors(reply.unpack(), fds, out)

        if self._closed:
            raise _closing()
        done = self._threads.submit(work)
        self._calls.add(cancel)
        try:
            return await asyncio.wrap_future(done)
        except asyncio.CancelledError:
            cancel.cancel()
            done.add_done_callback(lambda late: _drop(late, out))
            raise
        except StokerClientError as error:
            raise (_closing() if self._closed else error) from error
        finally:
            self._calls.discard(cancel)


class AsyncStream:
    """A job's records. It owns the descriptor; closing it cancels the job."""

    def __init__(self, fd: int, closed: Callable[[AsyncStream], None]) -> None:
        os.set_blocking(fd, False)
        self._fd, self._closed = fd, closed
        self._lines, self._ready = Lines(), deque[bytes]()
        self._fault: StokerClientError | None = None
        self._waiter: asyncio.Future[bool] | None = None

    async def batch(self, patience_s: float | None = None) -> list[Record]:
        """All records that are there, at least one; [] after ``patience_s`` without any.

        The last record of the last batch is ``done``; raises StokerClientError. May be
        cancelled: nothing is lost. Not for two tasks at a time.
        """
        while not self._ready:
            if self._fault is not None:
                raise self._fault
            try:
                chunk = os.read(self._fd, _CHUNK_BYTES)
            except BlockingIOError:
                if not await self._readable(patience_s):
                    return []
                continue
            if not chunk:
                self.close()
                raise cut_off()
            self._ready.extend(self._lines.feed(chunk))
        return self._parsed()

    def _parsed(self) -> list[Record]:
        records: list[Record] = []
        while self._ready:
            try:
                record = parse(self._ready.popleft())
            except StokerClientError as error:
                self.abandon(error)
                if not records:
                    raise
                break  # first what came before it
            records.append(record)
            if record.kind == "done":
                self.close()
        return records

    async def _readable(self, patience_s: float | None) -> bool:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiter = waiter
        loop.add_reader(self._fd, _settle, waiter, True)
        timer = None
        if patience_s is not None:
            timer = loop.call_later(patience_s, _settle, waiter, False)
        try:
            return await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()
            if self._fd >= 0:
                loop.remove_reader(self._fd)

    def abandon(self, error: StokerClientError) -> None:
        """Close it and let whoever reads get ``error``."""
        self._fault = self._fault or error
        waiter = self._waiter
        self.close()
        if waiter is not None:
            _settle(waiter, True)

    def close(self) -> None:
        """Cancel the job unless it has ended. Harmless when called again."""
        if self._fd < 0:
            return
        if self._waiter is not None:
            asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)
        self._fd = -1
        self._closed(self)


def _settle(waiter: asyncio.Future[bool], found: bool) -> None:
    if not waiter.done():
        waiter.set_result(found)


def _with_descriptors(values: tuple[Any, ...], fds: Any, out: str) -> tuple[Any, ...]:
    if "h" not in out:
        return values
    kinds = out.strip("()")
    return tuple(
        int(fds.get(value)) if kind == "h" else value
        for kind, value in zip(kinds, values, strict=True)
    )


def _drop(late: Future[tuple[Any, ...]], out: str) -> None:
    """A reply that nobody waits for any more: its descriptors are closed."""
    if "h" not in out or late.cancelled() or late.exception() is not None:
        return
    for kind, value in zip(out.strip("()"), late.result(), strict=True):
        if kind == "h":
            os.close(value)


def _closing() -> StokerClientError:
    return StokerClientError("unavailable", "cannot go on: the door is closing")
