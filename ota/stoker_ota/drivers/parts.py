"""Files in the making: one that is filled in any order with a bitmap beside it, and one that
grows at its end. Both are locked, and go on where a power cut left them.

What is claimed to be here was synced before: data first, then the bitmap.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn, Self

from stoker_ota.core import chunks, have
from stoker_ota.drivers import write_errors
from stoker_ota.drivers.folder_sync import sync_folder
from stoker_ota.errors import InvalidRequest, OtaError
from stoker_ota.units import MIB
from stoker_ota.values.chunks import ChunkIndex, Chunks

SYNC_BYTES: Final = 32 * MIB
SYNC_S: Final = 10.0
"""A power cut loses at most so much of a slow link's work."""
MARK: Final = ".mark"
_MAX_MARK_BYTES: Final = 4096


class FilledPart:
    """See ``ports.fetching.ChunkPart``. ``<path>.have`` is there as long as chunks are missing."""

    def __init__(self, path: Path, wanted: Chunks, index: ChunkIndex) -> None:
        self._path, self._index = path, index
        self._journal = path.with_name(path.name + have.SUFFIX)
        self._unsynced, self._synced_s = 0, time.monotonic()
        self._lost = False  # a sync failed: what was written since the one before is gone
        self._fd = _open(path)
        try:
            begun = os.fstat(self._fd).st_size
            written = _read(self._journal, have.encoded_bytes(index.count))
            self.have = have.decode(
                written if begun == index.total else b"", wanted.root, index.count
            )
            if not self._journal.exists():
                self._take_over(begun)
            with _typed("make room for", path):
                self._reserve()
            _replace(self._journal, self.have.encode())
            with _typed("sync", path):  # a file with holes must not outlive its journal
                sync_folder(path.parent)
        except BaseException:
            os.close(self._fd)
            raise

    def _take_over(self, begun: int) -> None:
        """What was fetched from the begin on without chunks, as far as it is right."""
        for number in range(self._index.count):
            offset, length = self._index.offset(number), self._index.length(number)
            if offset + length > begun:
                return
            with _typed("read", self._path):
                data = os.pread(self._fd, length, offset)
            if not chunks.right(self._index, number, data):
                return
            self.have.add(number)

    def _reserve(self) -> None:
        if os.fstat(self._fd).st_size > self._index.total:
            os.ftruncate(self._fd, self._index.total)
        if self._index.total:
            os.posix_fallocate(self._fd, 0, self._index.total)

    def put(self, number: int, data: bytes) -> None:
        with _typed("write", self._path):
            _write(self._fd, data, self._index.offset(number))
        self.have.add(number)
        self._unsynced += len(data)
        due = time.monotonic() - self._synced_s >= SYNC_S
        if due or self._unsynced >= SYNC_BYTES:
            self.sync()

    def sync(self) -> None:
        """Bits of what was written since the last one become true on the disk."""
        self._lost = True
        with _typed("sync", self._path):
            os.fdatasync(self._fd)
        self._lost = False
        _replace(self._journal, self.have.encode())
        self._unsynced, self._synced_s = 0, time.monotonic()

    def finish(self) -> None:
        with _typed("sync", self._path):
            os.fsync(self._fd)
            sync_folder(self._path.parent)
            self._journal.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """What came so far is kept, also after a failure; not after a failed sync: a second one
        would succeed and mean nothing.
        """
        with contextlib.suppress(OtaError):
            if self._unsynced and not self._lost and self._journal.exists():
                self.sync()
        os.close(self._fd)


class GrowingPart:
    """See ``ports.fetching.WholePart``. ``<path>.mark`` says of which version the begin is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._marked = path.with_name(path.name + MARK)
        self._journal = path.with_name(path.name + have.SUFFIX)
        self._fd = _open(path)
        self._holes = self._journal.exists()  # of chunks: it is no begin of anything
        self.size = 0 if self._holes else os.fstat(self._fd).st_size
        self.mark = _mark(_read(self._marked, _MAX_MARK_BYTES)) if self.size else ""
        self._unsynced = 0

    def begin(self, offset: int, mark: str) -> None:
        with _typed("write", self._path):
            os.ftruncate(self._fd, offset)
            self._journal.unlink(missing_ok=True)
        self._holes = False
        self.size, self.mark = offset, mark
        _replace(self._marked, json.dumps(mark).encode())

    def append(self, data: bytes) -> None:
        if self._holes:
            self.begin(0, self.mark)
        with _typed("write", self._path):
            _write(self._fd, data, self.size)
            self.size += len(data)
            self._unsynced += len(data)
            if self._unsynced >= SYNC_BYTES:
                os.fdatasync(self._fd)
                self._unsynced = 0

    def sha256(self) -> str:
        with _typed("read", self._path), self._path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def finish(self) -> None:
        with _typed("sync", self._path):
            os.fsync(self._fd)
            self._marked.unlink(missing_ok=True)
            sync_folder(self._path.parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            os.fdatasync(self._fd)
        os.close(self._fd)


def _open(path: Path) -> int:
    """Locked: two processes must not fill one file."""
    with _typed("write", path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(fd)
        raise InvalidRequest(f"cannot write {path}: another process is filling it") from error
    return fd


def _write(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        offset, view = offset + written, view[written:]


def _read(path: Path, most: int) -> bytes:
    """Empty when it is not there, longer, or cannot be read: then all begins anew."""
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError:
        return b""
    return data if len(data) <= most else b""


def _replace(path: Path, data: bytes) -> None:
    making = path.with_name(path.name + ".new")
    with _typed("write", path):
        with making.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        making.replace(path)


def _mark(data: bytes) -> str:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return ""
    return value if isinstance(value, str) else ""


@contextlib.contextmanager
def _typed(verb: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        _fail(verb, path, error)


def _fail(verb: str, path: Path, error: OSError) -> NoReturn:
    raise write_errors.typed(verb, path, error, hint="make room; the update waits") from error
