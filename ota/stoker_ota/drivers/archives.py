"""Packs a folder of libraries, or a bundle, into the archive that ``core.archive`` reads."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from stoker_ota.core import archive
from stoker_ota.core.archive import Entry
from stoker_ota.drivers import folders, write_errors
from stoker_ota.drivers.files import SourceFile
from stoker_ota.errors import FileUnreadable, InvalidRequest, OtaError
from stoker_ota.ports.files import Progress

_CHUNK: Final = 1 << 20


def pack(folder: Path, target: Path, progress: Progress) -> tuple[Entry, ...]:
    """A new file ``target`` with a folder of libraries: same files, same bytes. Links and
    folders are refused: what they mean depends on where they are. InvalidRequest, OtaError.
    """
    names = [(name, folder / name) for name in _names(folder)]
    return _pack(folder, names, target, archive.RUNTIME, progress)


def pack_bundle(folder: Path, target: Path, progress: Progress) -> tuple[Entry, ...]:
    """A whole bundle in one file; what is no part of a bundle is refused. As ``pack``."""
    _names(folder)  # a folder that cannot be read is not an empty one
    names = [
        (path.relative_to(folder).as_posix(), path)
        for path in folder.rglob("*")
        if not path.is_dir()
    ]
    return _pack(folder, sorted(names), target, archive.BUNDLE, progress)


def listed(path: Path, form: archive.Form = archive.RUNTIME) -> tuple[Entry, ...]:
    """What a device would unpack. BadDocument, FileUnreadable."""
    with SourceFile(path) as source:
        return archive.entries(source.read_at, source.size, form)


def _pack(
    folder: Path,
    names: list[tuple[str, Path]],
    target: Path,
    form: archive.Form,
    progress: Progress,
) -> tuple[Entry, ...]:
    if not names or len(names) > form.files:
        raise InvalidRequest(f"cannot pack {folder}: it must hold 1 to {form.files} files")
    sizes = {name: _size(path) for name, path in names}
    for name, size in sizes.items():
        archive.header(name, size, form)  # before anything is written
    total = archive.total_bytes(sizes.items())
    folders.write_new(target, b"")
    try:
        with target.open("wb") as out:
            for name, path in names:
                out.write(archive.header(name, sizes[name], form))
                with SourceFile(path) as source:
                    for at in range(0, sizes[name], _CHUNK):
                        out.write(source.read_at(at, min(_CHUNK, sizes[name] - at)))
                        progress("pack", out.tell(), total)
                out.write(archive.padding(sizes[name]))
            out.write(archive.END)
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:
        target.unlink(missing_ok=True)
        raise write_errors.typed("write", target, error) from error
    except OtaError:
        target.unlink(missing_ok=True)
        raise
    return listed(target, form)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208
    except OSError as error:
        raise FileUnreadable(f"cannot read {folder}: {error.strerror}") from error


def _size(path: Path) -> int:
    facts = path.lstat()
    if not stat.S_ISREG(facts.st_mode):
        raise InvalidRequest(
            f"cannot pack {path}: it is no regular file",
            hint="put the file itself there; links and folders are not packed",
        )
    return facts.st_size
