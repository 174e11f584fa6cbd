"""Streams for asyncio: batches, silence, errors, and that nothing leaks when one gives up."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import Future

import pytest

from stoker_client.aio import AsyncStoker, AsyncStream, _drop
from stoker_client.errors import StokerClientError

Work = Callable[[AsyncStream, int], Awaitable[None]]


def with_pipe(work: Work) -> list[AsyncStream]:
    """Runs ``work(stream, write end)``; gives those streams that were told closed."""
    closed: list[AsyncStream] = []

    async def run() -> None:
        reader, writer = os.pipe()
        stream = AsyncStream(reader, closed.append)
        try:
            await asyncio.wait_for(work(stream, writer), 5)
        finally:
            stream.close()
            os.close(writer)

    asyncio.run(run())
    return closed


def test_records_come_as_many_as_are_there_and_done_closes() -> None:
    async def work(stream: AsyncStream, writer: int) -> None:
        os.write(writer, b'{"t":"a"}\n{"t":"b"}\n{"t":"c')
        assert [record.text for record in await stream.batch()] == ["a", "b"]
        os.write(writer, b'"}\n{"done":{}}\n')
        assert [record.kind for record in await stream.batch()] == ["text", "done"]
        with pytest.raises(BrokenPipeError):
            os.write(writer, b"x")

    assert len(with_pipe(work)) == 1


def test_silence_is_an_empty_batch_and_loses_nothing() -> None:
    async def work(stream: AsyncStream, writer: int) -> None:
        assert await stream.batch(0.001) == []
        os.write(writer, b'{"t":"late"}\n')
        assert (await stream.batch(1))[0].text == "late"

    with_pipe(work)


def test_a_cancelled_wait_loses_nothing() -> None:
    async def work(stream: AsyncStream, writer: int) -> None:
        waiting = asyncio.ensure_future(stream.batch())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        os.write(writer, b'{"t":"still"}\n')
        assert (await stream.batch())[0].text == "still"

    with_pipe(work)


def test_what_came_before_an_error_is_given_first() -> None:
    async def work(stream: AsyncStream, writer: int) -> None:
        os.write(writer, b'{"t":"a"}\n{"error":{"code":"engine-failed","message":"died"}}\n')
        assert [record.text for record in await stream.batch()] == ["a"]
        for _ in range(2):
            with pytest.raises(StokerClientError, match="died"):
                await stream.batch()

    with_pipe(work)


def test_an_end_without_a_last_line_is_an_error() -> None:
    async def run() -> None:
        reader, writer = os.pipe()
        stream = AsyncStream(reader, lambda _stream: None)
        os.write(writer, b'{"t":"a"}\n')
        os.close(writer)
        assert len(await stream.batch()) == 1
        with pytest.raises(StokerClientError) as cut:
            await stream.batch()
        assert cut.value.code == "engine-failed"

    asyncio.run(run())


def test_abandoning_wakes_the_reader_with_the_reason() -> None:
    async def work(stream: AsyncStream, _writer: int) -> None:
        waiting = asyncio.ensure_future(stream.batch())
        await asyncio.sleep(0)
        stream.abandon(StokerClientError("unavailable", "closing"))
        with pytest.raises(StokerClientError, match="closing"):
            await waiting

    assert len(with_pipe(work)) == 1


def test_a_reply_that_nobody_waits_for_loses_its_descriptors() -> None:
    reader, writer = os.pipe()
    late: Future[tuple[object, ...]] = Future()
    late.set_result(("/job", reader))
    _drop(late, "(oh)")
    with pytest.raises(BrokenPipeError):
        os.write(writer, b"x")
    os.close(writer)
    refused: Future[tuple[object, ...]] = Future()
    refused.set_exception(StokerClientError("busy", "full"))
    _drop(refused, "(oh)")


def test_a_closed_connection_refuses_calls() -> None:
    async def run() -> None:
        agent = AsyncStoker("unix:path=/nowhere")
        with pytest.raises(StokerClientError) as nowhere:
            await agent.models()
        assert nowhere.value.code == "unavailable"
        agent.close()
        with pytest.raises(StokerClientError, match="closing"):
            await agent.models()

    asyncio.run(run())
