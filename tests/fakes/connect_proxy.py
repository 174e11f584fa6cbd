"""A web proxy that knows CONNECT and nothing else; ``asked`` are the hosts it was asked for."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Proxy:
    port: int = 0
    asked: list[str] = field(default_factory=list)


@contextlib.contextmanager
def connect_proxy() -> Iterator[Proxy]:
    proxy = Proxy()
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen()
        proxy.port = int(door.getsockname()[1])

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    talk, _ = door.accept()
                    threading.Thread(target=_tunnel, args=(talk, proxy), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield proxy
        door.shutdown(socket.SHUT_RDWR)


def _tunnel(talk: socket.socket, proxy: Proxy) -> None:
    with talk, contextlib.suppress(OSError):
        head = b""
        while b"\r\n\r\n" not in head:
            head += talk.recv(4096)
        method, where, _ = head.split(b"\r\n")[0].decode().split(" ")
        proxy.asked.append(f"{method} {where}")
        host, _, port = where.rpartition(":")
        with socket.create_connection((host, int(port))) as far:
            talk.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            back = threading.Thread(target=_pump, args=(far, talk), daemon=True)
            back.start()
            _pump(talk, far)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
