"""A door before a real broker that knows MQTT 3.1.1 only: it hangs up on version 5.

The level is the ninth byte of CONNECT with a remaining length of one byte (MQTT 3.1.1, 3.1.2.2),
the tenth with two.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Final, Self

V311: Final = 4


class OldGate:
    """``levels``: what clients have asked for, in their order."""

    def __init__(self, port: int) -> None:
        self._behind = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self.levels: list[int] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._take, args=(client,), daemon=True).start()

    def _take(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            first = client.recv(4096)
            if len(first) < 10:
                return
            level = first[8] if first[1] < 0x80 else first[9]
            self.levels.append(level)
            if level != V311:
                return
            with socket.create_connection(("127.0.0.1", self._behind)) as behind:
                behind.sendall(first)
                back = threading.Thread(target=_pump, args=(behind, client), daemon=True)
                back.start()
                _pump(client, behind)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)
