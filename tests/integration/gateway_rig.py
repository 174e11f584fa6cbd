"""A real stoker-gateway as a process on a private bus, and plain HTTP to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Gateway:
    process: subprocess.Popen[str]
    port: int
    socket_path: Path
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def api(self) -> str:
        return f"{self.url}/v1"

    def text(self) -> str:
        return self.log.read_text(errors="replace")


_AS_SYSTEMD = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3)\n"
    "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1')\n"
    "os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
)


def with_socket(server: socket.socket, *words: str, **popen: Any) -> subprocess.Popen[str]:
    """``python WORDS`` with the socket as systemd hands it over."""
    fd = server.fileno()
    command = [sys.executable, "-c", _AS_SYSTEMD, str(fd), *words]
    started: subprocess.Popen[str] = subprocess.Popen(
        command, pass_fds=(fd,), text=True, stdout=subprocess.PIPE, **popen
    )
    return started


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path, timeout: float = 30.0) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    gateway: Gateway, path: str, body: object = None, *, unix: bool = False, method: str = "",
    headers: Mapping[str, str] | None = None, raw: bytes | None = None,
) -> Reply:  # fmt: skip
    """One request; ``body`` goes out as JSON."""
    con: http.client.HTTPConnection
    if unix:
        con = UnixConnection(gateway.socket_path)
    else:
        con = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    sent = raw if raw is not None else (None if body is None else json.dumps(body).encode())
    all_headers = {"Content-Type": "application/json", **(headers or {})}
    with contextlib.closing(con):
        con.request(method or ("GET" if sent is None else "POST"), path, sent, all_headers)
        got = con.getresponse()
        found = {name.lower(): value for name, value in got.getheaders()}
        return Reply(got.status, found, got.read())


def events(reply: Reply) -> list[Any]:
    """The data of each event; "[DONE]" as it is."""
    rows = re.findall(r"^data: (.*)$", reply.body.decode(), re.MULTILINE)
    return [row if row == "[DONE]" else json.loads(row) for row in rows]


@contextlib.contextmanager
def gateway(
    address: str, home: Path, env: dict[str, str], *args: str, config: str = ""
) -> Iterator[Gateway]:
    """``config``: lines of gateway.toml."""
    file, unix, log = home / "gateway.toml", home / "gateway.sock", home / "gateway.log"
    file.write_text(config)
    command = [sys.executable, "-m", "stoker.gateway.main", f"--config={file}", f"--bus={address}"]
    command += ["--listen=127.0.0.1:0", f"--unix={unix}", *args]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=sink, text=True, cwd="/"
        )
    try:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
        assert found, log.read_text()
        yield Gateway(process, int(found[1]), unix, log)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError("the gateway did not stop in time") from None
        if process.stdout is not None:
            process.stdout.close()
