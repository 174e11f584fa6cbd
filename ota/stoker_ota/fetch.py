"""stoker-fetch: fetches one object, or a source's documents, in a process of its own.

TLS, brokers and hostile servers stay out of the agent. It has no keys but a client's
certificate, little memory and few descriptors. One request on standard input; progress and the
end are JSON lines on standard output; SIGTERM cancels. Started by ``drivers.fetcher``.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from stoker_ota.core import fetch_request, web_rules
from stoker_ota.drivers import limits
from stoker_ota.drivers.brake import Brake
from stoker_ota.drivers.parts import FilledPart, GrowingPart
from stoker_ota.errors import Cancelled, InvalidRequest, NoMemory, OtaError, Unavailable
from stoker_ota.ports.fetching import ObjectSource
from stoker_ota.services import gather
from stoker_ota.units import MIB
from stoker_ota.values.chunks import ChunkIndex
from stoker_ota.values.fetching import DocumentsRequest, ObjectRequest, Request

if TYPE_CHECKING:
    from stoker_ota.drivers.mqtt_blobs import Blobs
    from stoker_ota.drivers.web import Web

EVERY_S: Final = 0.2
WAIT_TOLD_S: Final = 10.0
MEMORY_BYTES: Final = 512 * MIB
"""Address space: TLS, digests of the largest object, and threads' stacks, which are not used."""
FILES: Final = 64
SLACK_BYTES: Final = 64 * MIB
NICE: Final = 10


def main() -> int:
    """0 = done, and on the disk."""
    limits.die_with_parent()
    signal.signal(signal.SIGTERM, _cancel)
    say, brake = _Voice(), Brake(0)
    try:
        request = fetch_request.decode(sys.stdin.buffer.readline(fetch_request.MAX_REQUEST_BYTES))
        _limit(request)
        fetching = Fetching(request, say)
        brake = fetching.brake
        facts = fetching.run()
    except MemoryError:
        say({"error": NoMemory("cannot fetch: the memory is not enough").record()})
        return 1
    except OtaError as error:
        say({"error": error.record(), "wire": brake.taken})
        return 1
    say({"fetched": True, "peak_memory_bytes": limits.peak_memory_bytes(), **facts})
    return 0


class Fetching:
    """One request with what it needs; connections are made when they are first used."""

    def __init__(self, request: Request, say: _Voice) -> None:
        self._request, self._say, self._link = request, say, request.link
        rates = [self._link.max_rate]
        if isinstance(request, ObjectRequest):
            rates.append(request.wanted.max_rate)
        self._rate = min((rate for rate in rates if rate), default=0)
        self.brake = Brake(self._rate)
        self._made_web: Web | None = None
        self._made_blobs: Blobs | None = None

    def run(self) -> dict[str, object]:
        request = self._request
        try:
            if isinstance(request, DocumentsRequest):
                return {"documents": self._documents(request)}
            self._wait(request.delay_s)
            self._object(request)
            return {"wire_bytes": self.brake.taken}
        finally:
            for made in (self._made_web, self._made_blobs):
                if made is not None:
                    made.close()

    def _object(self, request: ObjectRequest) -> None:
        wanted, path = request.wanted, Path(request.part)
        sources = list(self._sources(request))
        if not sources:
            raise Unavailable(
                "cannot fetch: there is no source that can be asked from here",
                hint="mqtt: needs a broker, https: a server, file: a bundle",
            )
        with contextlib.ExitStack() as stack:
            faults: gather.Faults | None = gather.Faults()
            if wanted.chunks is not None and wanted.size:
                root = wanted.chunks

                def filled(index: ChunkIndex) -> FilledPart:
                    return stack.enter_context(FilledPart(path, root, index))

                faults = gather.by_chunks(wanted, sources, filled, self._progress)
            if faults is not None:
                part = stack.enter_context(GrowingPart(path))
                gather.whole(wanted, sources, part, self._progress, faults)

    def _sources(self, request: ObjectRequest) -> Iterator[ObjectSource]:
        """In the manifest's order; an address that cannot be asked from here is left out."""
        for uri in request.wanted.uris:
            scheme, _, name = uri.partition(":")
            if scheme == "file" and request.base.startswith(("https:", "http:")):
                yield self._web_object(web_rules.below(request.base, name))
            elif scheme == "https":
                yield self._web_object(uri)
            elif self._link.broker is not None and (
                scheme == "mqtt" or (scheme == "file" and request.base.startswith("mqtt:"))
            ):
                from stoker_ota.drivers.mqtt_blobs import MqttObject

                yield MqttObject(self._blobs())

    def _documents(self, request: DocumentsRequest) -> int:
        from stoker_ota.drivers import documents

        shelf: documents.Shelf
        if request.base.startswith("mqtt:"):
            if self._link.broker is None:
                raise InvalidRequest("cannot look for updates at a broker: none is configured")
            from stoker_ota.drivers.mqtt_blobs import MqttShelf

            shelf = MqttShelf(self._blobs())
        else:
            shelf = documents.WebShelf(self._web(), request.base)

        def said(done: int, total: int) -> None:
            self._progress("documents", done, total)

        return documents.copy(shelf, Path(request.folder), request.trust_version, said)

    def _web_object(self, address: str) -> ObjectSource:
        from stoker_ota.drivers.web_object import WebObject

        return WebObject(self._web(), address)

    def _web(self) -> Web:
        if self._made_web is None:
            from stoker_ota.drivers.web import Web

            self._made_web = Web(self._link, self.brake)
        return self._made_web

    def _blobs(self) -> Blobs:
        if self._made_blobs is None:
            from stoker_ota.drivers.mqtt_blobs import Blobs

            assert self._link.broker is not None
            self._made_blobs = Blobs(
                self._link.broker, self._link.window, self._rate, self.brake.count
            )
        return self._made_blobs

    def _wait(self, seconds: float) -> None:
        """A fleet does not begin at once; whoever listens hears that we live."""
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            self._progress("wait", 0, 0)
            time.sleep(min(left_s, WAIT_TOLD_S))

    def _progress(self, phase: str, done: int, total: int) -> None:
        self._say.progress(phase, done, total, self.brake.taken)


class _Voice:
    """Lines on standard output; progress now and then only."""

    def __init__(self) -> None:
        self._said_s = 0.0

    def __call__(self, value: object) -> None:
        sys.stdout.write(json.dumps(value) + "\n")
        sys.stdout.flush()

    def progress(self, phase: str, done: int, total: int, wire: int) -> None:
        now_s = time.monotonic()
        if now_s - self._said_s >= EVERY_S or done >= total:
            self._said_s = now_s
            self({"phase": phase, "done": done, "total": total, "wire": wire})


def _limit(request: Request) -> None:
    """What this process may take, whatever a server sends."""
    limits.limit_memory(MEMORY_BYTES)
    size = request.wanted.size if isinstance(request, ObjectRequest) else 0
    for kind, value in (
        (resource.RLIMIT_NOFILE, FILES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, size + SLACK_BYTES),
    ):
        _, hard = resource.getrlimit(kind)
        if hard != resource.RLIM_INFINITY:
            resource.setrlimit(kind, (min(value, hard), hard))
        else:
            resource.setrlimit(kind, (value, hard))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # an error of the write, not the end of us
    with contextlib.suppress(OSError):
        os.nice(NICE)  # the heat and the answers go first


def _cancel(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what came is synced in peace
    raise Cancelled("cannot go on fetching: it was cancelled")


if __name__ == "__main__":
    sys.exit(main())
