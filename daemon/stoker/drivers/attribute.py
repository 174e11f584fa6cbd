"""One sysfs attribute: read, written, and asked whether it may be written.

``ReadText`` and ``WriteText`` are the file openers of all heat drivers: tests hand in their own
to raise any errno at any path. Faults leave here as OSError.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path

ReadText = Callable[[Path], str]
"""Reads one attribute or raises OSError; tests inject faults here."""

WriteText = Callable[[Path, str], None]
"""Writes one attribute or raises OSError; tests inject faults here."""

_LARGEST_ATTRIBUTE = 4096
_NUMBERED = re.compile(r"(\d+)")


def read_attribute(path: Path) -> str:
    """Stripped; at most one page, as the kernel gives it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.read(descriptor, _LARGEST_ATTRIBUTE).decode("utf-8", "replace").strip()
    finally:
        os.close(descriptor)


def write_attribute(path: Path, text: str) -> None:
    """Never creates the file: a vanished policy must stay vanished."""
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def fault_name(error: OSError) -> str:
    """``EIO`` and the like: the same word in logs, D-Bus and tests."""
    return errno.errorcode.get(error.errno or 0, type(error).__name__)


def write_fault(path: Path) -> str:
    """Why this process may not write it: EROFS, EACCES, ENOENT …; "" = it may. Writes nothing."""
    if os.access(path, os.W_OK):
        return ""
    try:
        if os.statvfs(path).f_flag & os.ST_RDONLY:
            return "EROFS"
    except OSError as error:
        return fault_name(error)
    return "EACCES"


def numbered(directory: Path, prefix: str, suffix: str = "") -> list[Path]:
    """Entries ``prefixNsuffix`` in the order of N; an absent directory reads as empty."""
    try:
        names = [path.name for path in directory.iterdir()]
    except OSError:
        return []
    found: list[tuple[int, Path]] = []
    for name in names:
        if name.startswith(prefix) and name.endswith(suffix):
            middle = name[len(prefix) : len(name) - len(suffix)]
            if _NUMBERED.fullmatch(middle):
                found.append((int(middle), directory / name))
    return [path for _, path in sorted(found)]
