"""What the tour runs on: a private bus, a stokerd, temporary directories, and their end.

Children get a session of their own, so that Ctrl-C at the terminal reaches the tour alone,
which then takes them down in order. It shows nothing.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from stoker.errors import Unavailable
from stoker.tour import children
from stoker.tour.private_bus import PrivateBus
from stoker_client import Stoker, StokerClientError

_T = TypeVar("_T")
MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_START_LIMIT_S = 20.0
_STOP_LIMIT_S = 25.0  # stokerd waits for its runner and for slow readers


class Daemon:
    """One stokerd on one bus; ``log`` is where it writes."""

    def __init__(
        self, name: str, folder: Path, bus: str, options: Sequence[str], settings: str = ""
    ) -> None:
        self.bus = bus
        self.log = folder / f"{name}.log"
        config = folder / f"{name}.toml"
        config.write_text(settings)  # this machine's /etc/stoker is no part of the tour
        self.command = [
            *_program("stokerd", "stoker.main"),
            *("--bus", bus, "--config", str(config)),
            *("--state-dir", str(folder / f"{name}-state")),
            *("--runtime-dir", str(folder / f"{name}-run")),
            *options,
        ]
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Daemon:
        with self.log.open("ab") as log:
            self.process = children.start(self.command, stdout=log, stderr=log)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self.process is not None:
            children.stop(self.process, _STOP_LIMIT_S)

    def wait_for_name(self, stoker: Stoker) -> None:
        """Until it answers on the bus. Raises Unavailable if it ends or takes too long."""
        assert self.process is not None
        end = time.monotonic() + _START_LIMIT_S
        while True:
            try:
                stoker.load_state()
                return
            except StokerClientError as error:
                if error.code != "unavailable" or time.monotonic() > end:
                    raise
            if self.process.poll() is not None:
                raise Unavailable(
                    f"cannot start stokerd: it ended with status {self.process.returncode}"
                )
            time.sleep(0.02)


class Stage:
    """``with Stage() as stage``: a bus and a folder; everything on it ends with it."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.folder = Path()
        self.bus = ""

    def __enter__(self) -> Stage:
        with ExitStack() as opening:
            self.folder = Path(tempfile.mkdtemp(prefix="stoker-tour-"))
            opening.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self.bus = opening.enter_context(new_bus())
            self._stack = opening.pop_all()
        os.environ["STOKER_BUS_ADDRESS"] = self.bus
        # The commands shown must be the ones of this checkout.
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with _shielded():
            self._stack.__exit__(kind, error, trace)

    def enter(self, daemon: AbstractContextManager[_T]) -> _T:
        """Start a daemon that lives as long as the stage; the last one ends first."""
        return self._stack.enter_context(daemon)


@contextmanager
def new_bus() -> Iterator[str]:
    """The address of a private bus that does not hear the terminal's Ctrl-C."""
    bus = PrivateBus()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited by dbus-daemon
    try:
        bus.start()
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        yield bus.address.partition(",guid=")[0]  # short enough to be copied
    finally:
        bus.stop()


def along(address: str, programs: Path | None = None) -> list[str]:
    """What a shell in another terminal needs, so that every command of the README works there.

    One variable is enough: busctl, gdbus, pydbus and all of ours take it for the system bus's.
    """
    activate = (programs or Path(sys.executable).parent) / "activate"
    return [f"source {shlex.quote(str(activate))}", f"export DBUS_SYSTEM_BUS_ADDRESS={address}"]


def default_model() -> Path:
    """Where ``make run`` has put the embedded model."""
    cache = os.environ.get("STOKER_CACHE")
    root = Path(cache) if cache else Path.home() / ".cache" / "stoker"
    return root / "models" / MODEL_FILE


def tail(path: Path, lines: int = 25) -> list[str]:
    if not path.is_file():
        return []
    return path.read_text(errors="replace").splitlines()[-lines:]


def _program(name: str, module: str) -> list[str]:
    found = Path(sys.executable).parent / name
    return [str(found)] if found.is_file() else [sys.executable, "-m", module]


@contextmanager
def _shielded() -> Iterator[None]:
    """A second Ctrl-C must not leave children behind."""
    before = {n: signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
