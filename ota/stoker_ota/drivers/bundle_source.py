"""Fetches from a bundle in a folder: a USB stick, or anything that is mounted.

``file:blobs/SHA256`` is relative to the bundle; nothing outside of it is read.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from stoker_ota.core import have
from stoker_ota.core.bundle import CATALOG
from stoker_ota.drivers import write_errors
from stoker_ota.drivers.files import SourceFile
from stoker_ota.errors import (
    Cancelled,
    FileUnreadable,
    TooLarge,
    Unavailable,
)
from stoker_ota.ports.files import Progress, ReadAt
from stoker_ota.values.fetching import Wanted

SCHEME: Final = "file:"
SYNC_BYTES: Final = 32 << 20
_CHUNK: Final = 1 << 20
_NOT_THERE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EBADF, errno.ENAMETOOLONG)


def is_file(path: Path) -> bool:
    """Unavailable when it cannot be told: a stick that was pulled out answers with errors."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError as error:
        if error.errno in _NOT_THERE:
            return False
        raise Unavailable(f"cannot look at {path.name}: {error.strerror}") from error
    except ValueError:  # a name with a zero byte
        return False


class BundleSource:
    """``bundle`` is read, ``root`` is the store's folder that parts are written to."""

    def __init__(
        self, bundle: Path, root: Path, *, cancelled: Callable[[], bool] = lambda: False
    ) -> None:
        self._bundle, self._root, self._cancelled = bundle, root, cancelled

    def has(self, uris: tuple[str, ...]) -> bool:
        """Whether one of these addresses is a file here."""
        return any(self._path(uri) is not None for uri in uris)

    def fetch(self, wanted: Wanted, part: str, progress: Progress) -> None:
        """See ``ports.updates.Sources``."""
        uris = wanted.uris
        found = next((path for uri in uris if (path := self._path(uri)) is not None), None)
        if found is None:
            reason = f"cannot fetch {uris[0] if uris else 'it'}: the bundle has it not"
            if is_file(self._bundle / CATALOG):  # it is here: waiting would not help
                raise FileUnreadable(reason)
            raise Unavailable(reason)
        try:
            with SourceFile(found) as source:
                self._append(source, part, wanted.size, progress)
        except FileUnreadable as error:
            raise Unavailable(error.message) from error

    def _append(self, source: ReadAt, part: str, size: int, progress: Progress) -> None:
        _whole_again(self._root / part)
        append(source, self._root / part, size, progress, self._cancelled)

    def _path(self, uri: str) -> Path | None:
        if not uri.startswith(SCHEME):
            return None
        name = Path(uri.removeprefix(SCHEME))
        if name.is_absolute() or ".." in name.parts:
            return None
        path = self._bundle / name
        return path if is_file(path) else None


class BundleFolder:
    """A bundle's documents. See ``services.intake.Folder``; names come from there alone."""

    def __init__(self, bundle: Path) -> None:
        self._bundle = bundle

    def read(self, name: str, max_bytes: int) -> bytes | None:
        path = self._bundle / name
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FileUnreadable(f"cannot read {name} of the bundle: {error.strerror}") from error
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise FileUnreadable(f"cannot read {name} of the bundle: it is no regular file")
            with os.fdopen(fd, "rb", closefd=False) as file:
                data = file.read(max_bytes + 1)
        except OSError as error:
            raise FileUnreadable(f"cannot read {name} of the bundle: {error.strerror}") from error
        finally:
            os.close(fd)
        if len(data) > max_bytes:
            raise TooLarge(f"cannot read {name} of the bundle: it has more than {max_bytes} bytes")
        return data


def _whole_again(part: Path) -> None:
    """A part with holes, of chunks that came over the network, is no begin of the file."""
    journal = part.with_name(part.name + have.SUFFIX)
    try:
        if journal.exists():
            part.unlink(missing_ok=True)
            journal.unlink()
    except OSError as error:
        raise write_errors.typed("write", part, error) from error


def append(
    source: ReadAt, part: Path, size: int, progress: Progress, cancelled: Callable[[], bool]
) -> None:
    """From where ``part`` ends up to ``size``, synced now and then and at the end."""
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            done = os.fstat(fd).st_size
            unsynced = 0
            while done < min(size, source.size):
                if cancelled():
                    raise Cancelled("cannot go on fetching: it was cancelled")
                data = source.read_at(done, min(_CHUNK, min(size, source.size) - done))
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
                done, unsynced = done + len(data), unsynced + len(data)
                if unsynced >= SYNC_BYTES:
                    os.fdatasync(fd)
                    unsynced = 0
                progress("fetch", done, size)
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise write_errors.typed("write", part, error) from error
