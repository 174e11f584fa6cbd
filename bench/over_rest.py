"""Stoker through its gateway, as programs meet it that speak OpenAI's API: a ``Side``."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.llama_server import post
from bench.load import Work
from bench.over_bus import OverBus
from stoker.tour import children

READY_LIMIT_S = 30.0


class OverRest(OverBus):
    """The gateway is a process of its own on the same private bus; it listens on a unix socket
    and asks in the name of whoever is at the other end: us."""

    text_mark = b'"text":"'

    def __init__(self, model: Path, threads: int, *, extra: str = "", **words: Any) -> None:
        user = pwd.getpwuid(os.geteuid()).pw_name
        extra += f'\n[access]\ngateway_user = "{user}"'
        super().__init__(model, threads, extra=extra, **words)
        self._socket = self.home / "gateway.sock"
        (self.home / "gateway.toml").write_text("")
        command = [
            sys.executable, "-m", "stoker.gateway.main", f"--bus={self.bus.address}",
            f"--config={self.home / 'gateway.toml'}", "--listen=127.0.0.1:0",
            f"--unix={self._socket}",
        ]  # fmt: skip
        self._gateway = children.start(command, stdout=subprocess.DEVNULL)
        end = time.monotonic() + READY_LIMIT_S
        while not self._socket.exists():
            if time.monotonic() > end:
                raise SystemExit("cannot measure: the gateway did not become ready")
            time.sleep(0.05)

    def close(self) -> None:
        children.stop(self._gateway, 30.0)
        super().close()

    def begin(self, work: Work) -> int:
        body: dict[str, Any] = {
            "model": "bench",
            "prompt": work.prompt,
            "max_tokens": work.tokens,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return post(self._socket, "/v1/completions", body)

    def tokens(self, answer: bytes) -> int:
        found = 0
        for line in answer.split(b"\n"):
            if line.startswith(b"data: {"):
                usage = json.loads(line[6:]).get("usage")
                found = int(usage["completion_tokens"]) if usage else found
        if not found:
            raise SystemExit(f"cannot measure: the gateway: {answer[-500:]!r}")
        return found
