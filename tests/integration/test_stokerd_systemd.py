"""stokerd as systemd sees it: a notify socket, a watchdog, the signals."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from pathlib import Path

import pytest
from tests.integration.stokerd_rig import stokerd, until

from stoker.tour.private_bus import PrivateBus

pytestmark = pytest.mark.bus


class Listener:
    """systemd's end of NOTIFY_SOCKET."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(str(path))
        self.said: list[str] = []

    def hear(self) -> list[str]:
        with contextlib.suppress(BlockingIOError):
            while True:
                self.said += self._socket.recv(65536).decode().splitlines()
        return self.said


def test_ready_status_watchdog_reload_and_stopping_are_told(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str]
) -> None:
    listener = Listener(tmp_path / "notify")
    told = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "400000"}
    config = '[models.echo]\npath = "/dev/null"\n[runner]\nlauncher = "child"\n'
    arguments = ("--engine", "echo")
    with stokerd(private_bus, tmp_path, child_env | told, *arguments, config=config) as daemon:
        daemon.wait_ready()
        until(lambda: "STATUS=ready: echo" in listener.hear(), "status line")
        until(lambda: listener.hear().count("WATCHDOG=1") >= 3, "watchdog pings")
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: "RELOADING=1" in listener.hear(), "reload")
        os.kill(daemon.process.pid, signal.SIGSTOP)  # a stuck daemon says nothing
        time.sleep(0.1)
        before = len(listener.hear())
        time.sleep(1.0)
        assert len(listener.hear()) == before
        os.kill(daemon.process.pid, signal.SIGCONT)
    said = listener.hear()
    assert said.index("READY=1") < said.index("WATCHDOG=1")
    assert "STOPPING=1" in said
