"""Several files in one: an uncompressed tar that every tool opens and we read strictly.

Only what ``header`` writes is taken: regular files of known names, sorted, no links, no
owners, no times. So the same files are the same bytes, and deltas find what stayed. Pure.
Source of the format: POSIX.1-2017, pax, "ustar Interchange Format".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from stoker_ota.errors import BadDocument

BLOCK: Final = 512
END: Final = bytes(2 * BLOCK)
_MOST_OCTAL: Final = 8**11 - 1
_OCTAL: Final = re.compile(rb"[0-7]{11}\0")
_NAME_BYTES: Final = 100
_SIZE: Final = slice(124, 136)

ReadAt = Callable[[int, int], bytes]
"""(offset, bytes) -> exactly these bytes of the archive."""


@dataclass(frozen=True, slots=True)
class Form:
    """What an archive may hold."""

    what: str  # for messages
    name: re.Pattern[str]
    files: int
    file_bytes: int
    total_bytes: int


RUNTIME: Final = Form(
    "a library", re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,98}"), 64, 1 << 30, 4 << 30
)
"""A folder of shared libraries."""
BUNDLE: Final = Form(
    "a bundle's file",
    re.compile(
        r"catalog\.json|(trust|manifests)/[a-z0-9][a-z0-9._+-]{0,80}\.json|"
        r"blobs/[0-9a-f]{64}(\.chunks)?"
    ),
    8192,
    _MOST_OCTAL,  # 8 GiB: so much a tar of this kind can say
    1 << 40,
)
"""``core.bundle`` in one file."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file and where its bytes stand in the archive."""

    name: str
    offset: int
    size: int


def header(name: str, size: int, form: Form = RUNTIME) -> bytes:
    """The block before a file's bytes. BadDocument for a name or a size that is not taken."""
    if not form.name.fullmatch(name):
        raise BadDocument(f"cannot use archive: {name[:99]!r} is no name of {form.what}")
    if not 0 <= size <= form.file_bytes:
        raise BadDocument(f"cannot use archive: {name} has more than {form.file_bytes} bytes")
    fields = (
        (name.encode(), _NAME_BYTES), (b"0000644", 8), (b"0000000", 8), (b"0000000", 8),
        (b"%011o" % size, 12), (b"%011o" % 0, 12), (b" " * 8, 8), (b"0", 1), (b"", 100),
        (b"ustar", 6), (b"00", 2), (b"", 32), (b"", 32), (b"0000000", 8), (b"0000000", 8),
        (b"", 155), (b"", 12),
    )  # fmt: skip
    block = b"".join(value.ljust(width, b"\0") for value, width in fields)
    checksum = b"%06o\0 " % sum(block)
    return block[:148] + checksum + block[156:]


def padding(size: int) -> bytes:
    """What follows a file's bytes up to the next block."""
    return bytes(-size % BLOCK)


def entries(read_at: ReadAt, size: int, form: Form = RUNTIME) -> tuple[Entry, ...]:
    """The files of an archive of ``size`` bytes, each inside of it. BadDocument.

    No byte is free: two archives with the same files are the same.
    """
    if size > form.total_bytes or size < BLOCK + len(END) or size % BLOCK:
        raise BadDocument(f"cannot use archive: it cannot have {size} bytes")
    found: list[Entry] = []
    at, end = 0, size - len(END)
    while at < end:
        entry = _entry(read_at(at, BLOCK), at, end, form)
        if found and entry.name <= found[-1].name:
            raise BadDocument(
                f"cannot use archive: {entry.name} is not in order, or is there twice"
            )
        if len(found) >= form.files:
            raise BadDocument(f"cannot use archive: it has more than {form.files} files")
        found.append(entry)
        at = entry.offset + entry.size
        gap = padding(entry.size)
        if gap and read_at(at, len(gap)) != gap:
            raise BadDocument(f"cannot use archive: there is something behind {entry.name}")
        at += len(gap)
    if read_at(end, len(END)) != END:
        raise BadDocument("cannot use archive: it has no end")
    return tuple(found)


def total_bytes(files: Iterable[tuple[str, int]]) -> int:
    """Of an archive of these names and sizes."""
    return sum(BLOCK + size + len(padding(size)) for _, size in files) + len(END)


def _entry(block: bytes, at: int, end: int, form: Form) -> Entry:
    name = block[:_NAME_BYTES].rstrip(b"\0").decode("ascii", "replace")
    octal = block[_SIZE]
    if not _OCTAL.fullmatch(octal):
        raise BadDocument("cannot use archive: a size in it is no number")
    size = int(octal[:-1], 8)
    if block != header(name, size, form):
        raise BadDocument(f"cannot use archive: {name[:40]!r} is more than a plain file")
    if size + len(padding(size)) > end - at - BLOCK:
        raise BadDocument(f"cannot use archive: {name} is longer than the archive")
    return Entry(name, at + BLOCK, size)
