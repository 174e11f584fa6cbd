"""Applies deltas in a child: hostile input and heavy work stay out of this process.

The child says how far it is on a pipe; a child that says nothing for too long is killed.
Its typed error becomes ours.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from stoker_ota import errors
from stoker_ota.errors import Cancelled, InternalError, NoMemory
from stoker_ota.ports.files import Progress
from stoker_ota.units import MIB
from stoker_ota.values.delta import MAX_WINDOW_BYTES

SILENCE_S: Final = 600.0
"""Hashing gigabytes on an SD card takes minutes; nothing takes longer than this."""
LIMIT_BYTES: Final = 56 * MIB + 8 * MAX_WINDOW_BYTES
_BY_CODE: Final = {cls.code: cls for cls in errors.all_errors()}


class ChildPatcher:
    """See ``ports.updates.Patcher``; paths are relative to ``root``, absolute ones stay."""

    def __init__(self, root: Path, *, cancelled: Callable[[], bool] = lambda: False) -> None:
        self._root = root
        self._cancelled = cancelled

    def apply(
        self, delta: str, index_sha256: str, source: str, part: str, progress: Progress
    ) -> None:
        command = [
            sys.executable, "-m", "stoker_ota.apply", str(self._root / delta), index_sha256,
            str(self._root / source), str(self._root / part), str(LIMIT_BYTES),
        ]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=environment, cwd="/",
        )  # fmt: skip
        try:
            said = self._follow(child, progress)
        finally:
            if child.poll() is None:
                child.kill()
            status = child.wait()
            if child.stdout is not None:
                child.stdout.close()
        _judge(said, status)

    def _follow(self, child: subprocess.Popen[bytes], progress: Progress) -> dict[str, object]:
        """The last line the child said, {} when it said nothing that can be read."""
        assert child.stdout is not None
        fd, pending = child.stdout.fileno(), b""
        last: dict[str, object] = {}
        heard_s = time.monotonic()
        while True:
            if self._cancelled():
                raise Cancelled("cannot go on applying the delta: it was cancelled")
            ready, _, _ = select.select([fd], [], [], 0.2)
            if not ready:
                if time.monotonic() - heard_s > SILENCE_S:
                    raise InternalError("cannot apply the delta: its process hangs")
                continue
            data = os.read(fd, 65536)
            if not data:
                return last
            heard_s = time.monotonic()
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                last = _read(line)
                if "phase" in last:
                    progress(str(last["phase"]), _number(last, "done"), _number(last, "total"))


def _judge(said: dict[str, object], status: int) -> None:
    if status == 0 and said.get("applied") is True:
        return
    error = said.get("error")
    if isinstance(error, dict):
        cls = _BY_CODE.get(str(error.get("code")), InternalError)
        raise cls(str(error.get("message", "cannot apply the delta")))
    if status < 0:
        raise NoMemory(f"cannot apply the delta: its process was killed by signal {-status}")
    raise InternalError(f"cannot apply the delta: its process ended with status {status}")


def _read(line: bytes) -> dict[str, object]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _number(said: dict[str, object], key: str) -> int:
    value = said.get(key)
    return value if isinstance(value, int) else 0
