"""Real files: bounded reads, and writing that survives a power cut or says that it did not.

A result is made in a part file beside its place and renamed when it is whole and synced;
nothing is ever written into a file that somebody may have mapped.
"""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn, Self

from stoker_ota.drivers import write_errors
from stoker_ota.drivers.folder_sync import sync_folder
from stoker_ota.errors import FileUnreadable, InvalidRequest, OtaError
from stoker_ota.units import MIB

SYNC_BYTES: Final = 32 * MIB
"""Sync so often inside a big file: an SD card must not collect gigabytes of dirty pages."""
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


class SourceFile:
    """A regular file, read by offset."""

    def __init__(self, path: Path, *, fd: int = -1) -> None:
        """``fd``: opened by another process; then ``path`` only names it in messages."""
        self.path = path
        try:
            self._fd = fd if fd >= 0 else os.open(path, _READ)
            facts = os.fstat(self._fd)
        except OSError as error:
            raise FileUnreadable(f"cannot read {path}: {error.strerror}") from error
        if not stat.S_ISREG(facts.st_mode):
            os.close(self._fd)
            raise FileUnreadable(f"cannot read {path}: it is no regular file")
        self.identity = (facts.st_dev, facts.st_ino)
        self.size = facts.st_size

    def read_at(self, offset: int, length: int) -> bytes:
        parts: list[bytes] = []
        left = length
        try:
            while left:
                part = os.pread(self._fd, left, offset + length - left)
                if not part:
                    raise FileUnreadable(f"cannot read {self.path}: it ended early")
                parts.append(part)
                left -= len(part)
        except OSError as error:
            raise FileUnreadable(f"cannot read {self.path}: {error.strerror}") from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class OpenPart:
    """A file in the making, as whoever fills it sees it: no name, no lock, no folder."""

    def __init__(self, fd: int, path: Path) -> None:
        """``path`` only names it in messages."""
        self._fd, self.path, self._unsynced = fd, path, 0

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read_at(self, offset: int, length: int) -> bytes:
        try:
            return os.pread(self._fd, length, offset)
        except OSError as error:
            self._failed("read", error)

    def write_at(self, offset: int, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                written = os.pwrite(self._fd, view, offset)
                offset, view = offset + written, view[written:]
        except OSError as error:
            self._failed("write", error)
        self._unsynced += len(data)
        if self._unsynced >= SYNC_BYTES:
            self.sync()

    def sync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            self._failed("sync", error)
        self._unsynced = 0

    def forget_cache(self) -> None:
        """So that the next read comes from the disk (as far as the kernel obliges)."""
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)

    def _failed(self, verb: str, error: OSError) -> NoReturn:
        hint = "make room and try again"
        raise write_errors.typed(verb, self.path, error, hint=hint) from error


class PartFile(OpenPart):
    """``<final>.part``: locked, read and written by offset, at last renamed to ``final``.

    Left behind by an interruption it is found again with its bytes, so that work can go on.
    """

    def __init__(self, final: Path, *, size: int | None = None) -> None:
        """``size`` reserves the room at once. NoSpace, StorageFailed, InvalidRequest (locked)."""
        super().__init__(-1, final.with_name(final.name + ".part"))
        self.final = final
        self._worth_keeping = size is not None
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            self._failed("create", error)
        try:
            self._lock()
            if size is None:
                os.ftruncate(self._fd, 0)
            elif os.fstat(self._fd).st_size != size:
                os.ftruncate(self._fd, 0)
                if size:
                    os.posix_fallocate(self._fd, 0, size)
        except OSError as error:
            self.drop()
            os.close(self._fd)
            self._failed("make room for", error)
        except OtaError:
            os.close(self._fd)
            raise

    def _lock(self) -> None:
        busy = f"cannot write {self.final}: another process is making it"
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InvalidRequest(busy) from error
        # It may have been published since it was opened: then these are the final file's bytes.
        if not self.path.exists() or not os.path.samestat(os.fstat(self._fd), self.path.stat()):
            raise InvalidRequest(busy)

    def publish(self) -> None:
        """Everything to the disk, then the final name, then the folder."""
        try:
            os.fsync(self._fd)
            self.path.replace(self.final)
            sync_folder(self.final.parent)
        except OSError as error:
            self._failed("publish", error)

    def drop(self) -> None:
        """Remove what was made so far."""
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """After a failure the part goes; after an interruption it stays if work can go on."""
        failed = isinstance(error, OtaError) and not error.retryable
        if failed or (error is not None and not self._worth_keeping):
            self.drop()
        self.close()
