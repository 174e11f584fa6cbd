"""A broker that knows MQTT 3.1.1 only and says so to version 5; it retains what it was given.

Just enough of the protocol (OASIS MQTT 3.1.1) for one client that subscribes: CONNECT, SUBSCRIBE,
UNSUBSCRIBE, PINGREQ. ``silent``: it closes instead of answering version 5, as some do.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Collection, Iterator, Mapping

CONNECT, SUBSCRIBE, UNSUBSCRIBE, PINGREQ = 1, 8, 10, 12


@contextlib.contextmanager
def old_broker(
    retained: Mapping[str, bytes], *, silent: bool = False, denied: Collection[str] = ()
) -> Iterator[int]:
    """Its port. ``denied``: topics that nobody may subscribe to."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    talk, _ = door.accept()
                    threading.Thread(target=_talk, args=(talk,), daemon=True).start()

        def _talk(talk: socket.socket) -> None:
            with talk, contextlib.suppress(OSError, EOFError):
                while True:
                    kind, body = _packet(talk)
                    if kind == CONNECT and body[6] != 4:
                        if not silent:
                            talk.sendall(b"\x20\x02\x00\x01")  # unacceptable protocol version
                        return
                    _answer(talk, kind, body, retained, denied)

        threading.Thread(target=serve, daemon=True).start()
        yield int(door.getsockname()[1])
        door.shutdown(socket.SHUT_RDWR)


def _answer(
    talk: socket.socket, kind: int, body: bytes, retained: Mapping[str, bytes],
    denied: Collection[str],
) -> None:  # fmt: skip
    if kind == CONNECT:
        talk.sendall(b"\x20\x02\x00\x00")
    elif kind == SUBSCRIBE:
        names, at = [], 2
        while at < len(body):
            (length,) = struct.unpack_from(">H", body, at)
            names.append(body[at + 2 : at + 2 + length])
            at += length + 3
        codes = bytes(0x80 if name.decode() in denied else 0 for name in names)
        talk.sendall(_made(0x90, body[:2] + codes))
        for name in names:
            data = retained.get(name.decode())
            if data is not None and name.decode() not in denied:
                talk.sendall(_made(0x31, struct.pack(">H", len(name)) + name + data))
    elif kind == UNSUBSCRIBE:
        talk.sendall(_made(0xB0, body[:2]))
    elif kind == PINGREQ:
        talk.sendall(b"\xd0\x00")


def _packet(talk: socket.socket) -> tuple[int, bytes]:
    first = _exactly(talk, 1)[0]
    length = shift = 0
    while True:
        byte = _exactly(talk, 1)[0]
        length |= (byte & 127) << shift
        shift += 7
        if not byte & 128:
            return first >> 4, _exactly(talk, length)


def _made(first: int, body: bytes) -> bytes:
    length, out = len(body), bytearray([first])
    while True:
        out.append(length % 128 | (128 if length > 127 else 0))
        length //= 128
        if not length:
            return bytes(out) + body


def _exactly(talk: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = talk.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)
