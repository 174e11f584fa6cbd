"""Jobs while they answer: several as one, a stream to a client, the end when it leaves.

Backpressure is the chain itself: a client that reads slowly holds up ``send``, then the
pipe is not read, then the agent pauses this job and no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, Protocol, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from stoker.gateway.answers import Choice, Chunks
from stoker.gateway.problems import Problem, openai_error
from stoker.gateway.wire import Form
from stoker_client.errors import StokerClientError
from stoker_client.records import Record

T = TypeVar("T")
Batch = list[tuple[int, list[Record]]]
HEADERS: Final = {"cache-control": "no-cache", "x-accel-buffering": "no"}


class Stream(Protocol):
    async def batch(self, patience_s: float | None = None) -> list[Record]: ...
    def close(self) -> None: ...


class Gone(Exception):
    """The client has left."""


class Jobs:
    """The jobs of one request, read as they come. ``close`` cancels those that still run."""

    def __init__(self, streams: Sequence[Stream]) -> None:
        self._streams = tuple(streams)
        self._open = dict(enumerate(self._streams))
        self._reads: dict[int, asyncio.Task[list[Record]]] = {}

    @property
    def running(self) -> bool:
        return bool(self._open)

    async def next(self, patience_s: float | None = None) -> Batch:
        """(which job, its records); [] after ``patience_s`` in silence. Raises a job's error."""
        if len(self._streams) == 1:  # without a task a batch
            found = [(0, await self._streams[0].batch(patience_s))]
        else:
            found = await self._any(patience_s)
        for index, records in found:
            if records and records[-1].kind == "done":
                del self._open[index]
        return [item for item in found if item[1]]

    async def _any(self, patience_s: float | None) -> Batch:
        for index, stream in self._open.items():
            if index not in self._reads:
                self._reads[index] = asyncio.ensure_future(stream.batch())
        await asyncio.wait(
            self._reads.values(), timeout=patience_s, return_when=asyncio.FIRST_COMPLETED
        )
        ready = [index for index, read in self._reads.items() if read.done()]
        return [(index, self._reads.pop(index).result()) for index in ready]

    def close(self) -> None:
        for read in self._reads.values():
            read.cancel()
        for stream in self._streams:
            stream.close()


async def collect(jobs: Jobs, choices: Sequence[Choice], batch: Batch) -> None:
    """Until all have ended; ``batch`` has been read already."""
    while True:
        for index, records in batch:
            choices[index].take(records)
        if not jobs.running:
            return
        batch = await jobs.next()


class EventStream(Response):
    """A response that is made while it is sent."""

    def __init__(self, jobs: Jobs, chunks: Chunks, form: Form, first: Batch, keepalive_s: float):
        super().__init__(None, 200, dict(HEADERS), form.media_type)
        del self.headers["content-length"]
        self._jobs, self._chunks, self._form = jobs, chunks, form
        self._first, self._keepalive_s = first, keepalive_s

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await unless_gone(receive, self._send(send))
        except (Gone, OSError):  # nobody is there to be told
            pass
        finally:
            self._jobs.close()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for part in self._parts():
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _parts(self) -> AsyncIterator[bytes]:
        form = self._form
        head = b"".join(map(form.event, self._chunks.first()))
        try:
            batch = self._first
            while True:
                yield head + self._render(batch)
                head = b""
                if not self._jobs.running:
                    break
                batch = await self._jobs.next(self._keepalive_s)
            yield b"".join(map(form.event, self._chunks.last())) + form.end
        except (StokerClientError, Problem) as error:
            yield form.event({"error": openai_error(error)})  # and no [DONE]

    def _render(self, batch: Batch) -> bytes:
        """A prompt that is being read, or silence, is told as a comment: the line is alive."""
        parts = [
            self._form.event(chunk)
            for index, records in batch
            for chunk in self._chunks.of(index, records)
        ]
        return b"".join(parts) or self._form.keepalive


async def unless_gone(receive: Callable[[], Awaitable[Any]], work: Coroutine[Any, Any, T]) -> T:
    """``work``'s result; it is cancelled, and Gone raised, when the client leaves."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Gone
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnect(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
