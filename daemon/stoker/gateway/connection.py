"""One HTTP connection: uvicorn's h11 protocol, with the peer's user and limits it lacks.

``scope["client"]`` of a unix peer becomes ("unix", user ID as the kernel says it). A client
that is slow with its request's head, or one too many, is shown out.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Collection
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from stoker.gateway.guard import UNIX
from stoker.gateway.problems import tell
from stoker.gateway.settings import Settings
from stoker.gateway.wire import as_json
from stoker_client.errors import StokerClientError

_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid
_SPARE: Final = 16  # connections beyond those that may ask, which get their refusal as HTTP


def connection(settings: Settings) -> type[H11Protocol]:
    """The protocol's class, as uvicorn wants it."""

    class Connection(H11Protocol):
        _late: asyncio.TimerHandle | None = None
        peer: int | None = None  # the user of a unix socket; all of TCP counts as one

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            sock = transport.get_extra_info("socket")
            _send_at_once(sock)
            self.peer = _peer_uid(sock)
            if self.peer is not None:
                self.client = (UNIX, self.peer)
            if _crowded_out(self.peer, self.connections, settings):
                transport.write(_CROWDED)
                transport.close()
                return
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self._unwatch()
            super().connection_lost(exc)

        def send_400_response(self, msg: str) -> None:
            super().send_400_response(msg)
            _end_quietly(self.cycle)

        def _watch(self) -> None:
            """A request's head has so long from the first byte, or from the connection."""
            if self.cycle is not None and not self.cycle.response_complete:
                self._unwatch()
            elif self._late is None:
                self._late = self.loop.call_later(settings.header_timeout_s, self._show_out)

        def _unwatch(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

        def _show_out(self) -> None:
            self._late = None
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

    return Connection


def _end_quietly(cycle: Any) -> None:
    """Its body broke HTTP in the middle, and uvicorn has said so: whoever reads it hears of an
    end and may not answer too.
    """
    if cycle is not None and not cycle.response_complete:
        cycle.disconnected = True
        cycle.message_event.set()


def _send_at_once(sock: Any) -> None:
    """asyncio does so only for sockets that say they are TCP. Without it a token waits 40 ms
    for the acknowledgement of the one before.
    """
    if sock is not None and sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _crowded_out(peer: int | None, connections: Collection[Any], settings: Settings) -> bool:
    same = sum(getattr(other, "peer", None) == peer for other in connections)
    most = settings.max_connections + _SPARE
    return len(connections) > most or same > settings.max_connections_of_one


def _peer_uid(sock: Any) -> int | None:
    if sock is None or sock.family != socket.AF_UNIX:
        return None
    packed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _pid, uid, _gid = _CREDENTIALS.unpack(packed)
    return int(uid) & 0xFFFFFFFF


def _crowded() -> bytes:
    told = tell(
        StokerClientError(
            "busy", "cannot accept connection: too many", details={"retry_after_ms": 1000}
        )
    )
    body = as_json(told.body)
    return (
        b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\n"
        b"retry-after: 1\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    )


_CROWDED: Final = _crowded()
