"""What is said between the agent and the process that applies a delta, both ways.

That process reads hostile bytes, so its words are judged as an attacker's: bounded, known phases
and codes only, printable text. None of them makes a file right: the engine hashes the result.
"""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from typing import Final

from stoker_ota.core import strict_json
from stoker_ota.errors import (
    BadDelta,
    BadDocument,
    ChunkHash,
    FileUnreadable,
    InternalError,
    NoMemory,
    NoSpace,
    OtaError,
    ResultHash,
    SourceMismatch,
    StorageFailed,
    TooLarge,
    Unavailable,
)

PHASES: Final = ("source", "apply", "check")
MAX_JOB_BYTES: Final = 512
MAX_LINE_BYTES: Final = 4096
MAX_SAID_BYTES: Final = 8 << 20
"""In all; an honest process says a line of 70 bytes four times a second, for hours at most."""
_MAX_TEXT: Final = 300
_REPORTED: Final[dict[str, type[OtaError]]] = {
    cls.code: cls
    for cls in (
        BadDelta, ChunkHash, ResultHash, SourceMismatch, FileUnreadable, NoSpace, StorageFailed,
        NoMemory,
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Job:
    """``size``: bytes of the result. The descriptors of the three files come beside it."""

    index_sha256: bytes
    size: int


@dataclass(frozen=True, slots=True)
class Ending:
    """How the process ended, as the kernel or systemd tells it."""

    status: int = 0
    signum: int = 0
    out_of_memory: bool = False
    too_long: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    phase: str
    done: int
    total: int


def job_line(job: Job) -> bytes:
    value = {"index_sha256": job.index_sha256.hex(), "size": job.size}
    return strict_json.dumps(value) + b"\n"


def parse_job(line: bytes) -> Job:
    """BadDocument, TooLarge."""
    value = strict_json.loads(line, max_bytes=MAX_JOB_BYTES, what="the job")
    if not isinstance(value, dict):
        raise BadDocument("cannot read the job: it is no object")
    index, size = value.get("index_sha256"), value.get("size")
    if not isinstance(index, str) or not isinstance(size, int) or size < 0:
        raise BadDocument("cannot read the job: a field is missing")
    try:
        return Job(bytes.fromhex(index), size)
    except ValueError as error:
        raise BadDocument("cannot read the job: its hash is not hexadecimal") from error


def step_line(step: Step) -> bytes:
    return _line({"phase": step.phase, "done": step.done, "total": step.total})


def applied_line() -> bytes:
    return _line({"applied": True})


def error_line(error: OtaError) -> bytes:
    return _line({"error": {"code": error.code, "message": error.message[:_MAX_TEXT]}})


class Said:
    """Takes what the process says as it comes. ``over`` = it said how it went."""

    def __init__(self) -> None:
        self._pending, self._heard = b"", 0
        self.applied = False
        self.error: OtaError | None = None

    @property
    def over(self) -> bool:
        return self.applied or self.error is not None

    def hear(self, data: bytes) -> list[Step]:
        """BadDelta when it says what no honest process says."""
        self._heard += len(data)
        *lines, self._pending = (self._pending + data).split(b"\n")
        if self._heard > MAX_SAID_BYTES or len(self._pending) > MAX_LINE_BYTES:
            raise BadDelta("cannot apply the delta: its process talks too much")
        steps: list[Step] = []
        for line in lines:
            if not self.over:
                steps += self._one(line)
        return steps

    def _one(self, line: bytes) -> list[Step]:
        try:
            value = strict_json.loads(line, max_bytes=MAX_LINE_BYTES, what="its process")
        except (BadDocument, TooLarge) as error:
            raise BadDelta("cannot apply the delta: its process talks nonsense") from error
        match value:
            case {"phase": str(phase), "done": int(done), "total": int(total)}:
                if phase in PHASES and 0 <= done <= total:
                    return [Step(phase, done, total)]
            case {"applied": True}:
                self.applied = True
            case {"error": {"code": str(code), "message": str(message)}}:
                self.error = _REPORTED.get(code, InternalError)(_printable(message))
        return []


def judge(said: Said, how: Ending) -> None:
    """Raises what went wrong, if anything did."""
    if said.error is not None:
        raise said.error
    if said.applied:
        return
    if how.out_of_memory or how.signum == signal.SIGKILL:
        raise NoMemory("cannot apply the delta: its process was killed, as when memory is out")
    if how.too_long:
        raise InternalError("cannot apply the delta: its process took too long")
    if how.signum == signal.SIGTERM:
        raise Unavailable("cannot apply the delta: its process was stopped")
    if how.signum:
        raise BadDelta(f"cannot apply the delta: its process crashed on it (signal {how.signum})")
    raise InternalError(f"cannot apply the delta: its process ended with status {how.status}")


def _line(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _printable(text: str) -> str:
    """No line breaks and no escape sequences reach a log or a terminal."""
    kept = "".join(char if char.isprintable() else "?" for char in text[:_MAX_TEXT])
    return kept or "cannot apply the delta"
