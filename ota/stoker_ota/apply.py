"""stoker-apply: makes one file of another one and a delta, in a process of its own.

What it reads may be hostile. It gets little memory, opens three files and writes one;
progress and the end are JSON lines on standard output. Started by ``drivers.patcher``.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Final

from stoker_ota.drivers import limits
from stoker_ota.drivers.files import PartFile, SourceFile
from stoker_ota.errors import NoMemory, OtaError, ResultHash
from stoker_ota.services import delta_apply
from stoker_ota.services.whole_file import content

EVERY_S: Final = 0.2
SUFFIX: Final = ".part"


def main(words: list[str]) -> int:
    """DELTA INDEX_SHA256 SOURCE PART LIMIT_BYTES. 0 = PART is whole, verified and synced."""
    delta, index, source, part, limit = words
    try:
        limits.limit_memory(int(limit))
        apply(Path(delta), bytes.fromhex(index), Path(source), Path(part))
    except MemoryError:
        _say({"error": NoMemory("cannot apply the delta: the memory is not enough").record()})
        return 1
    except OtaError as error:
        _say({"error": error.record()})
        return 1
    _say({"applied": True, "peak_memory_bytes": limits.peak_memory_bytes()})
    return 0


def apply(delta_path: Path, index_sha256: bytes, source_path: Path, part_path: Path) -> None:
    """Goes on at the first window that is not right yet. OtaError."""
    with SourceFile(delta_path) as file, SourceFile(source_path) as source:
        delta = delta_apply.open_delta(file, index_sha256=index_sha256)
        delta_apply.check_source(delta.index, source)
        target = delta.index.target
        final = part_path.with_name(part_path.name.removesuffix(SUFFIX))
        with PartFile(final, size=target.size) as part:
            first = delta_apply.intact(delta.index, part)
            delta_apply.write(delta, source, part, first=first, progress=_Progress())
            part.forget_cache()
            if content(part, "check") != target:
                raise ResultHash("cannot apply the delta: what the disk gives back is wrong")


class _Progress:
    """A line now and then: the reader draws a bar, nobody needs each window."""

    def __init__(self) -> None:
        self._said_s = 0.0

    def __call__(self, phase: str, done: int, total: int) -> None:
        now_s = time.monotonic()
        if now_s - self._said_s >= EVERY_S or done >= total:
            self._said_s = now_s
            _say({"phase": phase, "done": done, "total": total})


def _say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
