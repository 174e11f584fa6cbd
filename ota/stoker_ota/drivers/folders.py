"""An operator's folders on the build host: keys, documents, bundles. Nothing is overwritten.

Keys are written with mode 0600 before their first byte; documents appear whole or not.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import tomllib
from pathlib import Path
from typing import Final

from stoker_ota.drivers import write_errors
from stoker_ota.errors import BadDocument, FileUnreadable, InvalidRequest

_CHUNK: Final = 1 << 20
MAX_READ_BYTES: Final = 8 << 20


def read(path: Path, max_bytes: int = MAX_READ_BYTES) -> bytes:
    """A regular file's bytes. FileUnreadable, also when it is longer."""
    try:
        with path.open("rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise FileUnreadable(f"cannot read {path}: it is no regular file")
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise FileUnreadable(f"cannot read {path}: {error.strerror}") from error
    if len(data) > max_bytes:
        raise FileUnreadable(f"cannot read {path}: it has more than {max_bytes} bytes")
    return data


def read_toml(path: Path, what: str, max_bytes: int = 1 << 20) -> dict[str, object]:
    """The tables of an operator's file. FileUnreadable, BadDocument."""
    try:
        return tomllib.loads(read(path, max_bytes).decode())
    except ValueError as error:  # of TOML, of UTF-8, or a number of thousands of digits
        raise BadDocument(f"cannot read {what} {path}: {error}") from error
    except RecursionError as error:
        raise BadDocument(f"cannot read {what} {path}: it is nested too deep") from error


def versions(folder: Path) -> list[int]:
    """Of a folder of documents that are named by their version, in order; none where it is not."""
    return sorted(int(path.stem) for path in folder.glob("*.json") if path.stem.isdecimal())


def write_new(path: Path, data: bytes, mode: int = 0o644) -> None:
    """InvalidRequest when it exists: a key or a published document is never lost."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError as error:
        raise InvalidRequest(f"cannot write {path}: it exists already") from error
    except OSError as error:
        raise write_errors.typed("write", path, error) from error
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise write_errors.typed("write", path, error) from error


def replace(path: Path, data: bytes) -> None:
    """The old bytes or the new ones."""
    making = path.with_name(f".{path.name}.new")
    making.unlink(missing_ok=True)
    write_new(making, data)
    try:
        making.replace(path)
    except OSError as error:
        raise write_errors.typed("write", path, error) from error


def name_of(data: bytes) -> str:
    """The hex SHA-256, by which blobs are known."""
    return hashlib.sha256(data).hexdigest()


def unique() -> str:
    """A few random characters for a name that nobody else may have."""
    return secrets.token_hex(4)


def measure(path: Path) -> tuple[int, str]:
    """Bytes and hex SHA-256 of a file. FileUnreadable."""
    try:
        with path.open("rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise FileUnreadable(f"cannot read {path}: it is no regular file")
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return file.tell(), digest
    except OSError as error:
        raise FileUnreadable(f"cannot read {path}: {error.strerror}") from error


def link_or_copy(source: Path, target: Path) -> None:
    """Into a bundle, without a second copy on the disk where that is possible."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    making = target.with_name(f".{target.name}.new")
    making.unlink(missing_ok=True)
    try:
        try:
            os.link(source.resolve(), making)
        except OSError:  # another file system
            with source.open("rb") as old, making.open("wb") as new:
                while chunk := old.read(_CHUNK):
                    new.write(chunk)
        making.replace(target)
    except OSError as error:
        making.unlink(missing_ok=True)
        raise write_errors.typed("write", target, error) from error
