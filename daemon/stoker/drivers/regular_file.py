"""Reads a file that must be a regular one, up to a limit.

A FIFO or a device in its place would hang its reader, deaf to SIGTERM, or never end.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read_regular(path: Path, limit_bytes: int) -> bytes:
    """At most one byte more than ``limit_bytes``, so that the caller can tell. OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "not a regular file", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(limit_bytes + 1)
    finally:
        os.close(descriptor)
