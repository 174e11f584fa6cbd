"""The door for a scraper: GET /metrics over HTTP, on loopback or a unix socket. One thread.

Whoever may open the address may read: numbers, and no word of any prompt. A slow or silent
peer is dropped after a few seconds; one at a time is served, the kernel queues the others.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from stoker import __version__
from stoker.api.metrics import Collector
from stoker.config.addresses import Address
from stoker.errors import Unavailable

_log = logging.getLogger(__name__)
PATIENCE_S: Final = 5.0
_SOCKET_MODE: Final = 0o660  # stokerd's group, which a scraper can join


class MetricsServer:
    """Bound on creation (Unavailable when the address is taken), serving from ``start`` on."""

    def __init__(self, address: Address, collector: Collector) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(collector)
        self._path = address.path
        try:
            self._server = _listen(address, _handler(registry))
        except OSError as error:
            raise Unavailable(
                f"cannot serve metrics on {address}: {error.strerror or error}",
                hint="choose another address in [metrics] listen",
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", daemon=True
        )

    @property
    def port(self) -> int:
        """0 for a unix socket."""
        return 0 if self._path else int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Safe without a start."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(PATIENCE_S)
        self._server.server_close()
        if self._path:
            with contextlib.suppress(OSError):
                Path(self._path).unlink()


class _Six(HTTPServer):
    address_family = socket.AF_INET6


class _Unix(HTTPServer):
    """HTTPServer wants a host and a port; a unix socket has none."""

    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        path = Path(str(self.server_address))
        with contextlib.suppress(FileNotFoundError):
            path.unlink()  # of an earlier life: nobody else may have it, the directory is ours
        self.socket.bind(str(path))
        os.chmod(path, _SOCKET_MODE)  # noqa: PTH101 (the socket's own name)
        self.server_name, self.server_port = "localhost", 0

    def get_request(self) -> tuple[socket.socket, Any]:
        found, _ = self.socket.accept()
        return found, ("unix", 0)


def _listen(address: Address, handler: Callable[..., BaseHTTPRequestHandler]) -> HTTPServer:
    if address.path:
        return _Unix(address.path, handler)  # type: ignore[arg-type]
    kind = _Six if ":" in address.host else HTTPServer
    return kind((address.host, address.port), handler)


def _handler(registry: CollectorRegistry) -> Callable[..., BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE_S
        server_version, sys_version = f"stokerd/{__version__}", ""

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(HTTPStatus.NOT_FOUND, explain="metrics are at /metrics")
                return
            encode, kind = choose_encoder(self.headers.get("Accept", ""))
            body = encode(registry)
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            _log.debug(format, *args)

    return Handler
