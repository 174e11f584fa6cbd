"""How fast blobs come out of a broker: our puller beside a plain client, over a line with a delay.

The plain client asks for many blobs at once, checks nothing and keeps nothing: that is the
broker's own speed. The line is a relay in a process of its own that holds every byte for half
a round trip each way.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import multiprocessing
import os
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from tests.integration import broker_rig

from stoker_ota.core.topics import Topics
from stoker_ota.drivers.mqtt_blobs import Blobs
from stoker_ota.drivers.mqtt_link import Heard, Link
from stoker_ota.drivers.publisher import Publisher
from stoker_ota.units import MIB
from stoker_ota.values.chunks import DEFAULT_CHUNK_BYTES
from stoker_ota.values.fetching import DEFAULT_WINDOW, Broker

LOT: Final = 64
LIMIT_S: Final = 120.0
READ: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Pulled:
    """Megabytes (10^6) a second, medians; ``line`` is W·C/RTT where there is a delay."""

    ours: float
    raw: float
    line: float


@dataclass(frozen=True, slots=True)
class Cost:
    """Of the broker for 100 MB: memory for what is retained, CPU seconds for what is pulled."""

    memory_mb: float
    cpu_s: float


def measure(size_mb: float, delays_ms: list[int], rounds: int) -> tuple[dict[int, Pulled], Cost]:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        mosquitto = stack.enter_context(broker_rig.started(broker_rig.plain(Path(folder))))
        place = Broker("127.0.0.1", mosquitto.port, tls=None, client_id="bench")
        before = mosquitto.rss_bytes()
        names = _publish(place, int(size_mb * 1e6))
        grown = mosquitto.rss_bytes() - before
        cpu_s, moved, found = 0.0, 0.0, {}
        for delay in delays_ms:
            with _line(mosquitto.port, delay / 2000) as port:
                there = Broker("127.0.0.1", port, tls=None, client_id="bench")
                began = _cpu_s(mosquitto.pid)
                ours = sorted(_ours(there, names) for _ in range(rounds))
                cpu_s += _cpu_s(mosquitto.pid) - began
                moved += rounds * len(names) * DEFAULT_CHUNK_BYTES
                raw = sorted(_raw(there, names) for _ in range(rounds))
            line = DEFAULT_WINDOW * DEFAULT_CHUNK_BYTES / (delay / 1000) / 1e6 if delay else 0.0
            found[delay] = Pulled(ours[rounds // 2], raw[rounds // 2], line)
    total = len(names) * DEFAULT_CHUNK_BYTES
    return found, Cost(grown / 1e6 / total * 1e8, cpu_s / moved * 1e8)


def _publish(place: Broker, size: int) -> list[str]:
    topics, made = Topics(place.root), random.Random(7)
    names: list[str] = []

    def blobs() -> Iterator[tuple[str, object]]:
        for _ in range(max(40, size // DEFAULT_CHUNK_BYTES)):
            data = made.randbytes(DEFAULT_CHUNK_BYTES)
            names.append(hashlib.sha256(data).hexdigest())
            yield topics.blob(names[-1]), lambda data=data: data

    publisher = Publisher(place)
    publisher.publish(blobs(), lambda _size: None)  # type: ignore[arg-type]
    publisher.close()
    return names


def _ours(place: Broker, names: list[str]) -> float:
    """Connected before it is timed, as in the middle of an update."""
    blobs = Blobs(place, DEFAULT_WINDOW)
    assert blobs.one(names[0], DEFAULT_CHUNK_BYTES)
    began_s = time.perf_counter()
    size = sum(len(data) for _, data in blobs.pull(names, DEFAULT_CHUNK_BYTES))
    took_s = time.perf_counter() - began_s
    blobs.close()
    assert size == len(names) * DEFAULT_CHUNK_BYTES, "not all blobs came"
    return size / took_s / 1e6


def _raw(place: Broker, names: list[str]) -> float:
    topics, link = Topics(place.root), Link(place, "-raw")
    link.connect()
    assert link.news.get(timeout=LIMIT_S).heard is Heard.CONNECTED
    began_s, size = time.perf_counter(), 0
    for at in range(0, len(names), LOT):
        lot = [topics.blob(name) for name in names[at : at + LOT]]
        link.subscribe(lot)
        left = len(lot)
        while left:
            news = link.news.get(timeout=LIMIT_S)
            if news.heard is Heard.MESSAGE:
                left -= 1
                size += len(news.payload)
        link.unsubscribe(lot)
    took_s = time.perf_counter() - began_s
    link.close()
    return size / took_s / 1e6


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def _line(port: int, delay_s: float) -> Iterator[int]:
    """The port of a relay to ``port``; without a delay the broker's own."""
    if not delay_s:
        yield port
        return
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=relay, args=(port, delay_s, there), daemon=True
    )
    process.start()
    try:
        yield int(here.recv())
    finally:
        process.terminate()
        process.join(10)


def relay(port: int, delay_s: float, said: Connection) -> None:
    """A child's whole life."""

    async def serve() -> None:
        async def joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            far = await asyncio.open_connection("127.0.0.1", port, limit=8 * MIB)
            await asyncio.gather(_carry(reader, far[1], delay_s), _carry(far[0], writer, delay_s))

        server = await asyncio.start_server(joined, "127.0.0.1", 0, limit=8 * MIB)
        said.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


async def _carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float
) -> None:
    """Bytes leave in their order, each so long after it came; what is under way is unbounded."""
    loop = asyncio.get_running_loop()
    held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def leave() -> None:
        while True:
            due_s, data = await held.get()
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            if not data:
                writer.close()
                return
            writer.write(data)
            await writer.drain()

    leaving = asyncio.create_task(leave())
    with contextlib.suppress(OSError):
        while data := await reader.read(READ):
            held.put_nowait((loop.time() + delay_s, data))
    held.put_nowait((loop.time() + delay_s, b""))
    with contextlib.suppress(OSError):
        await leaving
