"""A small web server with TLS and ranges that can be told to misbehave.

It serves the files of a folder. ``faults`` are taken one a request, whatever is asked for; what
was asked is in ``asked``.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.fakes.tls_world import TlsWorld


@dataclass(frozen=True)
class Fault:
    """``status`` instead of an answer, with headers; or an answer that ends after ``cut`` bytes,
    or whose byte ``flip`` (of what is sent) is another.
    """

    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    cut: int = -1
    flip: int = -1
    stall_s: float = 0.0


@dataclass
class WebServer:
    """``ranges`` False: every answer is the whole file. ``etags`` False: no validators."""

    folder: Path
    tls: TlsWorld | None = None
    clients: bool = False  # must show a certificate
    ranges: bool = True
    etags: bool = True
    lengths: bool = True
    faults: deque[Fault] = field(default_factory=deque)
    asked: list[tuple[str, str]] = field(default_factory=list)
    moved: dict[str, str] = field(default_factory=dict)
    sent: int = 0
    host: str = "localhost"

    def __post_init__(self) -> None:
        self.lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"world": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        if self.tls is not None:
            pair = self.tls.server()
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pair.certificate, pair.key)
            if self.clients:
                context.load_verify_locations(self.tls.ca)
                context.verify_mode = ssl.CERT_REQUIRED
            self.server.socket = context.wrap_socket(
                self.server.socket, server_side=True, do_handshake_on_connect=False
            )

    @property
    def base(self) -> str:
        scheme = "https" if self.tls is not None else "http"
        return f"{scheme}://{self.host}:{self.server.server_address[1]}"

    def url(self, name: str) -> str:
        return f"{self.base}/{name}"

    def ranges_asked(self) -> list[str]:
        return [asked for _, asked in self.asked if asked]


class _Handler(BaseHTTPRequestHandler):
    world: WebServer
    protocol_version = "HTTP/1.1"
    timeout = 20

    def log_message(self, *_words: Any) -> None:
        pass

    def do_GET(self) -> None:
        world = self.world
        asked = self.headers.get("Range", "")
        with world.lock:
            world.asked.append((self.path, asked))
            fault = world.faults.popleft() if world.faults else Fault()
        if fault.stall_s:
            time.sleep(fault.stall_s)
        if fault.status:
            self._empty(fault.status, fault.headers)
            return
        if self.path in world.moved:
            self._empty(302, (("Location", world.moved[self.path]),))
            return
        path = world.folder / self.path.lstrip("/")
        if not path.is_file():
            self._empty(404, ())
            return
        self._send(path.read_bytes(), asked, fault)

    def _send(self, data: bytes, asked: str, fault: Fault) -> None:
        etag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", asked) if self.world.ranges else None
        if match and self.headers.get("If-Range") in (None, etag):
            first, last = int(match[1]), min(int(match[2]), len(data) - 1)
            if first >= len(data):
                self._empty(416, (("Content-Range", f"bytes */{len(data)}"),))
                return
            body = data[first : last + 1]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        else:
            body = data
            self.send_response(200)
        if self.world.etags:
            self.send_header("ETag", etag)
        if self.world.lengths:
            self.send_header("Content-Length", str(len(body)))
        else:
            self.send_header("Connection", "close")
        for name, value in fault.headers:
            self.send_header(name, value)
        self.end_headers()
        if fault.flip >= 0:
            body = body[: fault.flip] + bytes([body[fault.flip] ^ 1]) + body[fault.flip + 1 :]
        if fault.cut >= 0:
            body = body[: fault.cut]
            self.close_connection = True
        with contextlib.suppress(OSError):
            self.wfile.write(body)
            self.world.sent += len(body)
        if not self.world.lengths:
            self.close_connection = True

    def _empty(self, status: int, headers: tuple[tuple[str, str], ...]) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()


@contextlib.contextmanager
def serving(server: WebServer) -> Iterator[WebServer]:
    thread = threading.Thread(target=server.server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.server.shutdown()
        server.server.server_close()
        thread.join(5.0)
