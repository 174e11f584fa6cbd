"""The store's disk: real files, every write synced and every sync checked.

An error of a sync means that what was written since the last one is gone (the kernel
may mark dirty pages clean after EIO): nothing is ever retried on the same file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stoker_ota.drivers import write_errors
from stoker_ota.drivers.folder_sync import sync_folder
from stoker_ota.errors import FileUnreadable

_CHUNK: Final = 1 << 20
_BLOCK: Final = 512  # stat(2): the unit of st_blocks
_NO_LINK: Final = (errno.ENOENT, errno.ENOTDIR, errno.EINVAL)


class RealDisk:
    """See ``ports.disk.Disk``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, path: str, max_bytes: int) -> bytes | None:
        try:
            fd = os.open(self.root / path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FileUnreadable(f"cannot read {path}: {error.strerror}") from error
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise FileUnreadable(f"cannot read {path}: it is no regular file")
            with os.fdopen(fd, "rb", closefd=False) as file:
                data = file.read(max_bytes + 1)
        except OSError as error:
            raise FileUnreadable(f"cannot read {path}: {error.strerror}") from error
        finally:
            os.close(fd)
        if len(data) > max_bytes:
            raise FileUnreadable(f"cannot read {path}: it has more than {max_bytes} bytes")
        return data

    def write(self, path: str, data: bytes) -> None:
        self._put(path, data, os.O_TRUNC)

    def append(self, path: str, data: bytes) -> None:
        self._put(path, data, os.O_APPEND)

    def rename(self, old: str, new: str) -> None:
        with _typed("rename", old):
            (self.root / old).replace(self.root / new)

    def symlink(self, target: str, path: str) -> None:
        with _typed("link", path):
            (self.root / path).symlink_to(target)

    def readlink(self, path: str) -> str | None:
        try:
            return os.readlink(self.root / path)  # noqa: PTH115 (the text, not a path)
        except OSError as error:
            if error.errno in _NO_LINK:
                return None
            raise FileUnreadable(f"cannot read link {path}: {error.strerror}") from error

    def make_folder(self, path: str) -> None:
        with _typed("make folder", path):
            self._make_folder(self.root / path)

    def _make_folder(self, folder: Path) -> None:
        """Open to all, whatever the umask: the runtime reads here as another user."""
        if folder.is_dir():
            return
        self._make_folder(folder.parent)
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            folder.chmod(0o755)

    def names(self, folder: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(os.listdir(self.root / folder)))  # noqa: PTH208
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:
            raise FileUnreadable(f"cannot list {folder}: {error.strerror}") from error

    def remove(self, path: str) -> None:
        target = self.root / path
        with _typed("remove", path):
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)

    def sync_folder(self, path: str) -> None:
        with _typed("sync folder", path):
            sync_folder(self.root / path)

    def size(self, path: str) -> int | None:
        facts = self._facts(path)
        return facts.st_size if facts is not None and stat.S_ISREG(facts.st_mode) else None

    def held_bytes(self, folder: str) -> int:
        found = (self._facts(f"{folder}/{name}") for name in self.names(folder))
        return sum(facts.st_blocks * _BLOCK for facts in found if facts is not None)

    def _facts(self, path: str) -> os.stat_result | None:
        try:
            return (self.root / path).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise FileUnreadable(f"cannot look at {path}: {error.strerror}") from error

    def sha256(self, path: str) -> str:
        try:
            with (self.root / path).open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise FileUnreadable(f"cannot read {path}: {error.strerror}") from error

    def read_part(self, path: str, offset: int, size: int) -> bytes:
        with _opened(self.root / path, path) as fd:
            return _exactly(fd, offset, size, path)

    def copy_part(self, path: str, offset: int, size: int, target: str) -> None:
        with _opened(self.root / path, path) as source, _typed("write", target):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(self.root / target, flags, 0o644)
            try:
                while size:
                    view = memoryview(_exactly(source, offset, min(size, _CHUNK), path))
                    offset, size = offset + len(view), size - len(view)
                    while view:
                        view = view[os.write(fd, view) :]
                os.fchmod(fd, 0o444)  # whatever the umask: the runner is another user
                os.fsync(fd)
            finally:
                os.close(fd)

    def seal(self, path: str) -> None:
        with _typed("seal", path):
            fd = os.open(self.root / path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fchmod(fd, 0o444)
                os.fsync(fd)
            finally:
                os.close(fd)

    def free_bytes(self) -> int:
        try:
            facts = os.statvfs(self.root)
        except OSError as error:
            raise FileUnreadable(f"cannot ask for free space: {error.strerror}") from error
        return facts.f_bavail * facts.f_frsize

    def _put(self, path: str, data: bytes, how: int) -> None:
        with _typed("write", path):
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | how
            fd = os.open(self.root / path, flags, 0o644)
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
                os.fsync(fd)
            finally:
                os.close(fd)


@contextlib.contextmanager
def _opened(file: Path, path: str) -> Iterator[int]:
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise FileUnreadable(f"cannot read {path}: {error.strerror}") from error
    try:
        yield fd
    finally:
        os.close(fd)


def _exactly(fd: int, offset: int, size: int, path: str) -> bytes:
    try:
        data = os.pread(fd, size, offset)
    except OSError as error:
        raise FileUnreadable(f"cannot read {path}: {error.strerror}") from error
    if len(data) != size:
        raise FileUnreadable(f"cannot read {path}: it ends too early")
    return data


@contextlib.contextmanager
def _typed(verb: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise write_errors.typed(verb, path, error, hint="make room; the update waits") from error
