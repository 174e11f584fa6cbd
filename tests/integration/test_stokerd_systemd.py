"""stokerd as systemd sees it: a notify socket, a watchdog, the signals."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.integration.stokerd_rig import stokerd, until

from stoker.drivers import config_retry
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


def test_a_wrong_configuration_is_tried_again_when_a_file_changes(
    tmp_path: Path, child_env: dict[str, str]
) -> None:
    """The pause after several failures is long; a person who mends the file does not feel it."""
    config = tmp_path / "stoker.toml"
    config.write_text("[wrong")
    command = [sys.executable, "-m", "stoker.main", f"--config={config}",
               f"--runtime-dir={tmp_path}"]  # fmt: skip
    told = child_env | {"NOTIFY_SOCKET": str(tmp_path / "notify")}
    for _ in range(2):
        assert subprocess.run(command, env=told, check=False, timeout=30).returncode == 78
    state = tmp_path / config_retry.STATE
    files = state.read_text().rpartition("\n")[0]
    state.write_text(f"{files}\n20")
    with subprocess.Popen(command, env=told, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "trying again in 60 s" not in process.stderr.readline():
            assert process.poll() is None
        config.write_text("[wrong] # still")
        process.stderr.read()
        assert process.wait(20) == 78
