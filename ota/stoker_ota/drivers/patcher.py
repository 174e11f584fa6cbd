"""Applies deltas in a child: hostile input and heavy work stay out of this process.

The child has this user's rights, so it is for development and for agents that are no service;
the package has a unit for it. What the child says is judged by ``core.apply_talk``.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from stoker_ota.core import apply_talk
from stoker_ota.core.apply_talk import Ending, Job
from stoker_ota.drivers import apply_link, limits
from stoker_ota.drivers.apply_link import LIMIT_BYTES, Files, Patience
from stoker_ota.ports.files import Progress

PROGRAM: Final = ("-P", "-m", "stoker_ota.apply")
_GRACE_S: Final = 5.0  # to end by itself, once it has said its last word


class ChildPatcher:
    """See ``ports.updates.Patcher``; paths are relative to ``root``, absolute ones stay."""

    def __init__(
        self,
        root: Path,
        *,
        cancelled: Callable[[], bool] = lambda: False,
        patience: Patience | None = None,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self._root, self._cancelled = root, cancelled
        self._patience, self._program = patience or Patience(), tuple(program)

    def apply(
        self, delta: str, index_sha256: str, source: str, part: str, size: int, progress: Progress
    ) -> None:
        job = Job(bytes.fromhex(index_sha256), size)
        with apply_link.opened(self._root, delta, source, part, size) as files:
            self._run(job, files, progress)

    def _run(self, job: Job, files: Files, progress: Progress) -> None:
        link, theirs = socket.socketpair()
        with link:
            with theirs:
                child = self._start(theirs)
            try:
                apply_link.send(link, job, files)
                said = apply_link.follow(link, files, progress, self._cancelled, self._patience)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(_GRACE_S)
            finally:
                child.kill()
                status = child.wait()
        apply_talk.judge(said, Ending(max(status, 0), signum=max(-status, 0)))

    def _start(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        command = [
            sys.executable, *self._program, "--fd", str(theirs.fileno()), "--limit",
            str(LIMIT_BYTES),
        ]  # fmt: skip
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=limits.child_environment(), cwd="/",
            pass_fds=[theirs.fileno()],
        )  # fmt: skip
