"""Commands in the guest, from the host: one socket, one JSON object a line, every wait limited.

The other end is agent.py. Knows nothing of Stoker.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.system.vm.report import Miss, VmError

_CONNECT_S = 10.0
_GRACE_S = 20.0  # beyond a command's own limit: an emulated machine answers late


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended; ``code`` 124 = it took too long and was killed."""

    argv: tuple[str, ...]
    code: int
    out: str
    err: str
    seconds: float

    @property
    def text(self) -> str:
        return self.out.strip()

    def must(self, why: str = "") -> Done:
        """Itself, or a Miss that shows the command and what it said."""
        if self.code == 0:
            return self
        what = why or " ".join(self.argv)[:120]
        raise Miss(f"{what}: exit {self.code}: {(self.err or self.out).strip()[-600:]}")

    def must_fail(self, why: str) -> Done:
        if self.code != 0:
            return self
        raise Miss(f"{why}: it worked: {self.text[-200:]}")


class Guest:
    """Not thread-safe; several commands may run at once through ``start`` and ``wait``."""

    def __init__(self, path: Path) -> None:
        self._socket = self._connect(path)
        self._kept = b""
        self._replies: dict[int, dict[str, Any]] = {}
        self._running: dict[int, tuple[tuple[str, ...], float]] = {}
        self._number = 0
        self._greeted = False

    @staticmethod
    def _connect(path: Path) -> socket.socket:
        until = time.monotonic() + _CONNECT_S
        while True:
            link = socket.socket(socket.AF_UNIX)
            try:
                link.connect(str(path))
                return link
            except OSError as error:
                link.close()
                if time.monotonic() > until:
                    raise VmError(f"cannot reach qemu: {error}") from error
                time.sleep(0.05)

    def close(self) -> None:
        self._socket.close()

    def greeted(self, timeout_s: float) -> None:
        """Waits until the agent speaks for the first time."""
        until = time.monotonic() + timeout_s
        while not self._greeted:
            self._read(until, "the guest's agent")

    def start(
        self, argv: Sequence[str] | str, *, user: str = "root", timeout_s: float = 60.0,
        stdin: str = "",
    ) -> int:  # fmt: skip
        """Begins a command and gives its number. A string goes through sh -c."""
        words = ("sh", "-c", argv) if isinstance(argv, str) else tuple(argv)
        self._number += 1
        request = {"id": self._number, "argv": words, "user": user, "timeout_s": timeout_s}
        data = json.dumps({**request, "stdin": stdin}).encode() + b"\n"
        self._running[self._number] = (words, time.monotonic() + timeout_s + _GRACE_S)
        try:
            self._socket.settimeout(_GRACE_S)
            self._socket.sendall(data)
        except OSError as error:
            raise VmError(f"cannot speak to the guest: {error}") from error
        return self._number

    def wait(self, number: int) -> Done:
        words, until = self._running.pop(number)
        while number not in self._replies:
            self._read(until, " ".join(words)[:80])
        reply = self._replies.pop(number)
        return Done(words, reply["code"], reply["out"], reply["err"], reply["seconds"])

    def run(
        self, argv: Sequence[str] | str, *, user: str = "root", timeout_s: float = 60.0,
        stdin: str = "",
    ) -> Done:  # fmt: skip
        return self.wait(self.start(argv, user=user, timeout_s=timeout_s, stdin=stdin))

    def text(self, argv: Sequence[str] | str, *, user: str = "root", timeout_s: float = 60) -> str:
        """What a command that must work prints."""
        return self.run(argv, user=user, timeout_s=timeout_s).must().text

    def write(self, path: str, text: str) -> None:
        self.run(["sh", "-c", f'mkdir -p "$(dirname {path})" && cat >{path}'], stdin=text).must()

    def until(
        self, what: str, look: Callable[[], bool], *, timeout_s: float, every_s: float = 0.5
    ) -> float:
        """Seconds until ``look`` says yes; a Miss when it does not in time."""
        began = time.monotonic()
        while not look():
            if time.monotonic() - began > timeout_s:
                raise Miss(f"{what}: not within {timeout_s:.0f} s")
            time.sleep(every_s)
        return time.monotonic() - began

    def _read(self, until: float, what: str) -> None:
        left_s = until - time.monotonic()
        try:
            if left_s <= 0:
                raise TimeoutError
            self._socket.settimeout(left_s)
            data = self._socket.recv(1 << 16)
        except TimeoutError as error:
            raise VmError(f"no word from the guest in time: {what}") from error
        if not data:
            raise VmError(f"the guest is gone: {what}")
        *lines, self._kept = (self._kept + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "hello" in message:
                self._greeted = True
            else:
                self._replies[message["id"]] = message
