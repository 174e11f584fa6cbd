"""The peer llama-server as a child of ours, asked over its socket: ``LlamaServer`` is a ``Side``.

Same libraries, model, threads, slots and context for each slot as Stoker gets; what is its own
way of doing things (how it keeps caches) stays as it comes.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.load import Work
from bench.peers import llama_server, peer_environment
from stoker.tour import children

READY_LIMIT_S = 120.0


class LlamaServer:
    """Listens on a unix socket in a folder of its own."""

    text_mark = b'"content":"'

    def __init__(
        self, model: Path, *, threads: int, slots: int, context_tokens: int, spincount: str
    ) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._socket = Path(self._folder.name) / "server.sock"
        command = [
            str(llama_server()), "--model", str(model), "--host", str(self._socket),
            "--threads", str(threads), "--threads-batch", str(threads),
            "--parallel", str(slots), "--ctx-size", str(slots * context_tokens),
            "--flash-attn", "auto", "--n-gpu-layers", "0", "--fit", "off", "--no-ui",
            "--log-disable",
        ]  # fmt: skip
        self._process = children.start(
            command,
            env={**os.environ, **peer_environment(), "GOMP_SPINCOUNT": spincount},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._wait_ready()

    def close(self) -> None:
        children.stop(self._process, 30.0)
        self._folder.cleanup()

    def begin(self, work: Work) -> int:
        body: dict[str, Any] = {
            "prompt": work.prompt,
            "n_predict": work.tokens,
            "stream": True,
            "cache_prompt": work.reuse,
            # greedy on both sides, with the shortest chain of samplers that it has
            "temperature": 0.0,
            "samplers": ["top_k"],
            "top_k": 1,
        }
        return post(self._socket, "/completion", body)

    def tokens(self, answer: bytes) -> int:
        last: dict[str, Any] = {}
        for line in answer.split(b"\n"):
            if line.startswith(b"data: {"):
                last = json.loads(line[6:])
        if "tokens_predicted" not in last:
            raise SystemExit(f"cannot measure: llama-server: {answer[-500:]!r}")
        return int(last["tokens_predicted"])

    def _wait_ready(self) -> None:
        end = time.monotonic() + READY_LIMIT_S
        while time.monotonic() < end and self._process.poll() is None:
            with contextlib.suppress(OSError):
                if self._healthy():
                    return
            time.sleep(0.05)
        raise SystemExit("cannot measure: llama-server did not become ready")

    def _healthy(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(5.0)
            connection.connect(str(self._socket))
            connection.sendall(
                b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            )
            return b" 200 " in connection.recv(4096)


def post(path: Path, target: str, body: dict[str, Any]) -> int:
    """One request over a unix socket; the descriptor that its answer comes from."""
    data = json.dumps(body).encode()
    head = (
        f"POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Connection: close\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(str(path))
    connection.sendall(head.encode() + data)
    return connection.detach()
