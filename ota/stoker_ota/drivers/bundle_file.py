"""A bundle in one file, as ``stoker-ota bundle pack`` makes it; and which of both a path is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stoker_ota.core import archive
from stoker_ota.core.archive import Entry
from stoker_ota.drivers.bundle_source import SCHEME, BundleFolder, BundleSource, is_file
from stoker_ota.drivers.files import SourceFile
from stoker_ota.errors import FileUnreadable, OtaError, TooLarge, Unavailable
from stoker_ota.ports.files import Progress
from stoker_ota.values.fetching import Wanted


def source(
    path: Path, root: Path, *, cancelled: Callable[[], bool] = lambda: False
) -> BundleSource:
    """Of a file or a folder. Unavailable when it does not answer."""
    kind = BundleFileSource if is_file(path) else BundleSource
    return kind(path, root, cancelled=cancelled)


def folder(path: Path) -> BundleFolder:
    """The documents of a file or a folder. Unavailable when it does not answer, FileUnreadable for
    what is neither (a pipe, a device).
    """
    if is_file(path):
        return BundleFileFolder(path)
    if path.exists() and not path.is_dir():
        raise FileUnreadable("cannot read the bundle: it is neither a folder nor a file")
    return BundleFolder(path)


@dataclass(frozen=True, slots=True)
class Stretch:
    """One file inside, as ``ports.files.ReadAt``."""

    file: SourceFile
    entry: Entry

    @property
    def size(self) -> int:
        return self.entry.size

    def read_at(self, offset: int, length: int) -> bytes:
        if offset + length > self.entry.size:
            raise FileUnreadable(f"cannot read {self.entry.name}: it ended early")
        return self.file.read_at(self.entry.offset + offset, length)


class BundleFileFolder(BundleFolder):
    """See ``services.intake.Folder``. Names that are not inside are absent."""

    def read(self, name: str, max_bytes: int) -> bytes | None:
        with SourceFile(self._bundle) as file:
            found = _find(file, name)
            if found is None:
                return None
            if found.size > max_bytes:
                raise TooLarge(
                    f"cannot read {name} of the bundle: it has more than {max_bytes} bytes"
                )
            return file.read_at(found.offset, found.size)


class BundleFileSource(BundleSource):
    """See ``ports.updates.Sources``."""

    def has(self, uris: tuple[str, ...]) -> bool:
        try:
            with SourceFile(self._bundle) as file:
                return any(_find(file, name) for name in _names(uris))
        except OtaError:
            return False

    def fetch(self, wanted: Wanted, part: str, progress: Progress) -> None:
        try:
            with SourceFile(self._bundle) as file:
                entries = (_find(file, name) for name in _names(wanted.uris))
                found = next((entry for entry in entries if entry is not None), None)
                if found is None:
                    uri = wanted.uris[0] if wanted.uris else "it"
                    raise FileUnreadable(f"cannot fetch {uri}: the bundle has it not")
                self._append(Stretch(file, found), part, wanted.size, progress)
        except FileUnreadable as error:
            if is_file(self._bundle):  # it is here: waiting would not help
                raise
            raise Unavailable(error.message) from error


def _names(uris: tuple[str, ...]) -> list[str]:
    return [uri.removeprefix(SCHEME) for uri in uris if uri.startswith(SCHEME)]


def _find(file: SourceFile, name: str) -> Entry | None:
    found = archive.entries(file.read_at, file.size, archive.BUNDLE)
    return next((entry for entry in found if entry.name == name), None)
