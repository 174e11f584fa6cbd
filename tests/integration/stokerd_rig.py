"""A real stokerd on a private bus of its own, with a client beside it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
from tests.fakes.bus_client import BusClient

from stoker.api import contract
from stoker.errors import StokerError
from stoker.tour.private_bus import PrivateBus

SLOW = 0.02


def until(check: Callable[[], Any], what: str, timeout_s: float = 20.0) -> Any:
    """Poll for the world's slow parts; fails with ``what`` was awaited."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        found = check()
        if found:
            return found
        time.sleep(SLOW)
    raise AssertionError(f"not within {timeout_s} s: {what}")


class Stokerd:
    """One process; ``config`` lines go to its TOML file."""

    def __init__(
        self, bus: PrivateBus, home: Path, env: dict[str, str], *args: str, config: str = ""
    ) -> None:
        self.home, self.bus = home, bus
        self.log = home / "stokerd.log"
        file = home / "stoker.toml"
        file.write_text(config)
        self.config_file = file
        options = {"bus": bus.address, "config": file, "state-dir": home / "state"}
        options["runtime-dir"] = home / "run"
        command = [sys.executable, "-m", "stoker.main", *args]
        command += [f"--{name}={value}" for name, value in options.items()]
        environment = {**env, "STOKER_ECHO_FAULTS": "1"}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, env=environment, stderr=log)
        self.client = BusClient(bus.address)
        until(lambda: self._named() or self.process.poll() is not None, "bus name")
        assert self.process.poll() is None, self.text()

    def _named(self) -> bool:
        with contextlib.suppress(StokerError):
            return bool(self.client.get(contract.AGENT, "Version"))
        return False

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.client.call(contract.AGENT, "Status")
        return found

    def wait_ready(self, timeout_s: float = 60.0) -> dict[str, Any]:
        until(lambda: self.status()["state"] == "ready", f"ready; log:\n{self.text()}", timeout_s)
        return self.status()

    def runner(self) -> psutil.Process:
        return psutil.Process(self.status()["runner_pid"])

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(30)
        self.client.close()
        return status


@contextlib.contextmanager
def stokerd(
    bus: PrivateBus, home: Path, env: dict[str, str], *args: str, config: str = ""
) -> Iterator[Stokerd]:
    running = Stokerd(bus, home, env, *args, config=config)
    try:
        yield running
    finally:
        runners = (
            psutil.Process(running.process.pid).children() if running.process.poll() is None else []
        )
        running.stop()
        for runner in runners:
            assert not runner.is_running() or runner.status() == psutil.STATUS_ZOMBIE


@contextlib.contextmanager
def echoes(bus: PrivateBus, home: Path, env: dict[str, str]) -> Iterator[Callable[[str], Stokerd]]:
    """Starts a stokerd with the echo engine on each configuration it is given."""
    with contextlib.ExitStack() as running:

        def begin(config: str) -> Stokerd:
            daemon = running.enter_context(stokerd(bus, home, env, "--engine=echo", config=config))
            daemon.wait_ready()
            return daemon

        yield begin


class Stream:
    """A job's pipe, read line by line with a limit."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._rest = b""

    def next(self, timeout_s: float = 20.0) -> dict[str, Any]:
        """The next record; {} at end of file."""
        os.set_blocking(self.fd, False)
        end = time.monotonic() + timeout_s
        while b"\n" not in self._rest:
            try:
                part = os.read(self.fd, 65536)
            except BlockingIOError:
                assert time.monotonic() < end, "no record in time"
                time.sleep(0.002)
                continue
            if not part:
                return {}
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        record: dict[str, Any] = json.loads(line)
        return record

    def until_text(self) -> str:
        while True:
            record = self.next()
            assert record.keys() & {"t", "p", "r"}, record
            if "t" in record:
                return str(record["t"])

    def rest(self) -> list[dict[str, Any]]:
        found = []
        while record := self.next():
            found.append(record)
        os.close(self.fd)
        return found
