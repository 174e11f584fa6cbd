"""Runs the child for one job after the other: its progress, its result, or why it died."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from stoker import errors
from stoker.errors import EngineFailed, InternalError, StokerError

Progress = Callable[[float], None]
_TAIL: Final = 2000


class Workshop:
    """``threads`` of the child; ``progress`` hears 0..1 of the present job."""

    def __init__(self, threads: int, progress: Progress = lambda _part: None) -> None:
        self._threads, self.progress = threads, progress

    def do(self, what: str, **job: Any) -> dict[str, Any]:
        """Raises StokerError: the child's own, or EngineFailed when llama.cpp ended it."""
        request = {"do": what, "threads": self._threads, **job}
        command = [
            sys.executable,
            "-P",
            "-m",
            "stoker.models.child",
        ]  # -P: not our folder's modules
        environment = {
            "GOMP_SPINCOUNT": "2000",  # as a runner has it; see docs/inference.md
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        try:
            return self._follow(child, request)
        finally:
            if child.poll() is None:
                child.kill()
            child.communicate()

    def _follow(self, child: subprocess.Popen[str], request: Mapping[str, Any]) -> dict[str, Any]:
        assert child.stdin is not None
        assert child.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it died early: its status tells more
            json.dump(request, child.stdin)
            child.stdin.close()
        child.stdin = None
        for line in child.stdout:
            said = json.loads(line)
            if "progress" in said:
                done, total = said["progress"]
                self.progress(done / max(total, 1))
            elif "error" in said:
                raise _typed(said["error"])
            else:
                found: dict[str, Any] = said["result"]
                return found
        model = request.get("model") or request.get("source") or "the model"
        raise _died(child, str(model))


def _typed(record: Mapping[str, Any]) -> StokerError:
    cls = errors.by_code(str(record.get("code", "")))
    return cls(str(record.get("message", "")), hint=str(record.get("hint", "")))


def _died(child: subprocess.Popen[str], model: str) -> StokerError:
    _, said = child.communicate()
    status = child.returncode
    if status < 0:
        name = signal.Signals(-status).name
        return EngineFailed(
            f"cannot use {model}: llama.cpp ended with {name}",
            hint="the file is damaged, or memory is short" if name != "SIGILL" else "",
        )
    return InternalError(f"cannot use {model}: the child failed: {said[-_TAIL:].strip()}")
