"""The agent's end of applying: opens the files, passes their descriptors, listens.

The process at the other end needs no path and no right to any file. Whoever starts it sees to it
that it is gone before the part is used or given up.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stoker_ota.core import apply_talk
from stoker_ota.core.apply_talk import Job, Said
from stoker_ota.drivers.files import PartFile, SourceFile
from stoker_ota.errors import (
    BadDelta,
    BadDocument,
    Cancelled,
    InternalError,
    InvalidRequest,
    Unavailable,
)
from stoker_ota.ports.files import Progress
from stoker_ota.units import MIB
from stoker_ota.values.delta import MAX_WINDOW_BYTES

LIMIT_BYTES: Final = 56 * MIB + 8 * MAX_WINDOW_BYTES
"""Address space in which any delta can be applied, see ``drivers.limits``."""
SUFFIX: Final = ".part"
LOOK_S: Final = 0.2
_FILES: Final = 3
_READ_BYTES: Final = 65536


@dataclass(frozen=True, slots=True)
class Patience:
    """Hashing gigabytes on an SD card takes minutes; a process that only talks ends too."""

    silence_s: float = 600.0
    whole_s: float = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class Files:
    delta: SourceFile
    source: SourceFile
    part: PartFile
    size: int


@contextlib.contextmanager
def opened(root: Path, delta: str, source: str, part: str, size: int) -> Iterator[Files]:
    """The room for the part is taken here. See ``ports.updates.Patcher`` for the errors."""
    final = root / part.removesuffix(SUFFIX)
    with SourceFile(root / delta) as patch, SourceFile(root / source) as old:
        try:
            made = PartFile(final, size=size)
        except InvalidRequest as error:  # a process of an earlier stokerd is on its way out
            raise Unavailable(error.message) from error
        with made:
            yield Files(patch, old, made, size)


def send(link: socket.socket, job: Job, files: Files) -> None:
    """Before anything else. A process that is gone is found out by ``follow``."""
    passed = [files.delta.fileno(), files.source.fileno(), files.part.fileno()]
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        socket.send_fds(link, [apply_talk.job_line(job)], passed)


def receive(link: socket.socket) -> tuple[Job, list[int]]:
    """The other end: the job and the descriptors of delta, source and part. BadDocument."""
    line, passed, _flags, _peer = socket.recv_fds(link, apply_talk.MAX_JOB_BYTES, _FILES)
    if len(passed) != _FILES:
        raise BadDocument("cannot read the job: the descriptors are missing")
    return apply_talk.parse_job(line), passed


def follow(
    link: socket.socket,
    files: Files,
    progress: Progress,
    cancelled: Callable[[], bool],
    patience: Patience,
) -> Said:
    """Until it said how it went, or is gone. Cancelled, BadDelta, InternalError (it hangs)."""
    said = Said()
    began_s = heard_s = time.monotonic()
    link.settimeout(LOOK_S)
    while not said.over:
        if cancelled():
            raise Cancelled("cannot go on applying the delta: it was cancelled")
        if files.part.size > files.size:
            raise BadDelta(f"cannot apply the delta: it makes more than {files.size} bytes")
        now_s = time.monotonic()
        if now_s - heard_s > patience.silence_s or now_s - began_s > patience.whole_s:
            raise InternalError("cannot apply the delta: its process hangs")
        try:
            data = link.recv(_READ_BYTES)
        except TimeoutError:
            continue
        except ConnectionResetError:
            data = b""
        if not data:
            break
        heard_s = time.monotonic()
        for step in said.hear(data):
            progress(step.phase, step.done, step.total)
    return said
