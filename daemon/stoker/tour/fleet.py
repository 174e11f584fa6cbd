"""The fleet step: a signed command through a real mosquitto, and a delta that comes over it.

The broker is plain and on loopback: nothing that has an effect depends on trusting it. Without
mosquitto the step says so and shows nothing.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from stoker.errors import EngineFailed
from stoker.tour import children
from stoker.tour.operator import NAME, Operator
from stoker.tour.screen import Screen
from stoker_client import Stoker

DEVICE: Final = "tour"
VERSION: Final = 3  # the bundles before are the update step's
_WHERE: Final = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"
_STOP_LIMIT_S: Final = 5.0


class Mosquitto:
    """A broker for this tour alone; ``address`` is "" where there is none to start."""

    def __init__(self, folder: Path) -> None:
        self._program = shutil.which("mosquitto", path=_WHERE)
        self._file, self._log = folder / "mosquitto.conf", folder / "mosquitto.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""
        if self._program is not None:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = int(probe.getsockname()[1])
            self.address = f"mqtt://127.0.0.1:{port}"
            user = pwd.getpwuid(os.getuid()).pw_name
            self._file.write_text(
                f"listener {port} 127.0.0.1\nallow_anonymous true\nuser {user}\n"
                "set_tcp_nodelay true\npersistence false\n"
            )

    def __enter__(self) -> Mosquitto:
        """The device connects as soon as it answers: nobody waits for that here."""
        if self._program is not None:
            with self._log.open("ab") as log:
                command = [self._program, "-c", str(self._file)]
                self._process = children.start(command, stdout=log, stderr=log)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            children.stop(self._process, _STOP_LIMIT_S)

    def config(self) -> str:
        """What follows in stoker.toml after [updates]."""
        if not self.address:
            return ""
        broker = json.dumps(self.address)
        return f'sources = ["mqtt:"]\n[device]\nid = "{DEVICE}"\n[fleet]\nbroker = {broker}\n'


class Fleet:
    """The operator speaks to the device through the broker, and in no other way."""

    def __init__(
        self, screen: Screen, stoker: Stoker, operator: Operator, broker: Mosquitto
    ) -> None:
        self._screen, self._stoker = screen, stoker
        self._operator, self._broker = operator, broker

    def show(self) -> None:
        say = self._screen.say
        if not self._broker.address:
            say("Left out: mosquitto is not installed here (make bootstrap installs it).", "yellow")
            return
        say("A broker for all devices; it need not be trusted. A signed command, and its answer:")
        with self._operator.at_work():
            self._command("config.get", 'keys=["device.id", "updates.sources"]')
            self._operator.renamed(VERSION, b"far ")
            self._operator.bundle(VERSION, self._operator.home / "v1.gguf", shown=False)
            say("\nA new delta is cut into chunks on the broker; another command installs it:")
            self._ota("publish", f"bundle-{VERSION}")
            self._command("update.install", f"deployment={NAME}", f"version={VERSION}")
        facts = self._stoker.updates.facts()
        if facts["Current"] < 2:
            raise EngineFailed(f"cannot show an update: set {facts['Current']} is current")
        self._screen.fact("in use", f"set {facts['Current']}: {NAME} {VERSION}, over the air")

    def _command(self, *words: str) -> None:
        self._ota("command", *words, "--device", DEVICE)

    def _ota(self, *words: str) -> None:
        options: Sequence[str] = ("--broker", self._broker.address)
        self._operator.ota(*words, *options, heard=True)
