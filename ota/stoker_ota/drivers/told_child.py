"""A child process that says how far it is, a JSON line at a time, and how it ended.

One that says nothing for too long is killed; one that is cancelled is asked first. Its typed
error becomes ours.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from stoker_ota import errors
from stoker_ota.drivers import limits
from stoker_ota.errors import Cancelled, InternalError, NoMemory, OtaError

MAX_LINE_BYTES: Final = 1 << 20
_TURN_S: Final = 0.2
_BY_CODE: Final = {cls.code: cls for cls in errors.all_errors()}
Told = dict[str, object]


@dataclass(frozen=True, slots=True)
class Child:
    """``what`` it does, for messages ("apply the delta"). ``grace_s``: how long a cancelled one
    may take to end by itself after SIGTERM; 0 = it is killed at once. ``hung``, ``killed``:
    what it means when it says nothing, or is ended by a signal.
    """

    module: str
    what: str
    silence_s: float
    grace_s: float = 0.0
    hung: type[OtaError] = InternalError
    killed: type[OtaError] = NoMemory

    def run(
        self,
        words: Sequence[str],
        said: Callable[[Told], None],
        cancelled: Callable[[], bool],
        request: bytes = b"",
    ) -> Told:
        """Its last line. ``request`` is its standard input. OtaError."""
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", self.module, *words],
            stdin=subprocess.PIPE if request else subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=limits.child_environment(), cwd="/",
        )  # fmt: skip
        try:
            _give(child, request)
            last = self._follow(child, said, cancelled)
        finally:
            status = self._end(child)
        return self._judge(last, status)

    def _follow(
        self, child: subprocess.Popen[bytes], said: Callable[[Told], None],
        cancelled: Callable[[], bool],
    ) -> Told:  # fmt: skip
        assert child.stdout is not None
        fd, pending = child.stdout.fileno(), b""
        last: Told = {}
        heard_s = time.monotonic()
        while True:
            if cancelled():
                raise Cancelled(f"cannot go on to {self.what}: it was cancelled")
            ready, _, _ = select.select([fd], [], [], _TURN_S)
            if not ready:
                if time.monotonic() - heard_s > self.silence_s:
                    raise self.hung(f"cannot {self.what}: its process hangs")
                continue
            data = os.read(fd, 65536)
            if not data:
                return last
            heard_s = time.monotonic()
            *lines, pending = (pending + data)[-MAX_LINE_BYTES:].split(b"\n")
            for line in lines:
                last = _read(line)
                said(last)

    def _end(self, child: subprocess.Popen[bytes]) -> int:
        """Whatever happened: nothing of it goes on."""
        if child.poll() is None and self.grace_s:
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(self.grace_s)
        if child.poll() is None:
            child.kill()
        for pipe in (child.stdout, child.stdin):
            if pipe is not None:
                pipe.close()
        return child.wait()

    def _judge(self, said: Told, status: int) -> Told:
        if status == 0 and said:
            return said
        error = said.get("error")
        if isinstance(error, dict):
            raise _typed(error, self.what)
        if status < 0:
            raise self.killed(f"cannot {self.what}: its process was killed by signal {-status}")
        raise InternalError(f"cannot {self.what}: its process ended with status {status}")


def number(said: Told, key: str) -> int:
    value = said.get(key)
    return value if isinstance(value, int) else 0


def _give(child: subprocess.Popen[bytes], request: bytes) -> None:
    if child.stdin is None:
        return
    with contextlib.suppress(BrokenPipeError):  # it ended already, and says why
        child.stdin.write(request)
        child.stdin.close()


def _typed(error: dict[str, Any], what: str) -> OtaError:
    cls = _BY_CODE.get(str(error.get("code")), InternalError)
    details = error.get("details")
    return cls(
        str(error.get("message", f"cannot {what}")),
        hint=str(error.get("hint", "")),
        details=details if isinstance(details, dict) else None,
    )


def _read(line: bytes) -> Told:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
