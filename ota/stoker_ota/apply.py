"""stoker-apply: makes one file of another one and a delta, in a process of its own.

What it reads may be hostile. It is given three open files and little memory, and opens nothing
itself; progress and the end go back through the socket that it is started with.
"""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path
from typing import Final

from stoker_ota.core import apply_talk
from stoker_ota.core.apply_talk import Job, Step
from stoker_ota.drivers import apply_link, limits
from stoker_ota.drivers.files import OpenPart, SourceFile
from stoker_ota.errors import BadDelta, NoMemory, OtaError, ResultHash
from stoker_ota.services import delta_apply
from stoker_ota.services.whole_file import content

EVERY_S: Final = 0.25
GONE: Final = 75  # EX_TEMPFAIL; the unit counts it as a clean end
_DELTA, _SOURCE, _PART = Path("the delta"), Path("its source"), Path("the result")


def main(words: list[str]) -> int:
    """``--fd N`` or ``--connect PATH``: the socket; ``--limit BYTES``: of memory.

    0 = the part is whole, verified and synced; 75 = whoever asked is gone (it was killed, say):
    no fault, the next one asks again. A unit has its limits from systemd.
    """
    options = dict(zip(words[::2], words[1::2], strict=True))
    try:
        with _link(options) as link:
            return _serve(link, int(options.get("--limit", "0")))
    except (ConnectionError, FileNotFoundError):
        sys.stderr.write("stoker-apply: whoever asked is gone\n")
        return GONE


def _link(options: dict[str, str]) -> socket.socket:
    if "--fd" in options:
        return socket.socket(fileno=int(options["--fd"]))
    link = socket.socket(socket.AF_UNIX)
    try:
        link.connect(options["--connect"])
    except OSError:
        link.close()
        raise
    return link


def _serve(link: socket.socket, limit_bytes: int) -> int:
    failed: OtaError
    try:
        if limit_bytes:
            limits.limit_memory(limit_bytes)
        job, passed = apply_link.receive(link)
        apply(job, passed, _Progress(link))
    except MemoryError:
        failed = NoMemory("cannot apply the delta: the memory is not enough")
    except OtaError as error:
        failed = error
    else:
        link.sendall(apply_talk.applied_line())
        return 0
    link.sendall(apply_talk.error_line(failed))
    return 1


def apply(job: Job, passed: list[int], progress: _Progress) -> None:
    """Goes on at the first window that is not right yet. OtaError."""
    part = OpenPart(passed[2], _PART)
    file, source = SourceFile(_DELTA, fd=passed[0]), SourceFile(_SOURCE, fd=passed[1])
    delta = delta_apply.open_delta(file, index_sha256=job.index_sha256)
    target = delta.index.target
    if target.size != job.size:
        raise BadDelta(
            f"cannot apply the delta: it makes {target.size} bytes, {job.size} are wanted"
        )
    delta_apply.check_source(delta.index, source, progress)
    first = delta_apply.intact(delta.index, part)
    delta_apply.write(delta, source, part, first=first, progress=progress)
    part.forget_cache()
    if content(part, "check", progress) != target:
        raise ResultHash("cannot apply the delta: what the disk gives back is wrong")


class _Progress:
    """A line now and then: the reader draws a bar, nobody needs each window."""

    def __init__(self, link: socket.socket) -> None:
        self._link, self._said_s = link, 0.0

    def __call__(self, phase: str, done: int, total: int) -> None:
        now_s = time.monotonic()
        if now_s - self._said_s >= EVERY_S or done >= total:
            self._said_s = now_s
            self._link.sendall(apply_talk.step_line(Step(phase, done, total)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
