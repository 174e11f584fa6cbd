"""Small attributes below a root, read and written as text. Knows no meaning of any of them."""

from __future__ import annotations

from pathlib import Path

from stoker.drivers.attribute import (
    ReadText,
    WriteText,
    fault_name,
    read_attribute,
    write_attribute,
)


class SysfsText:
    """``services.held_files.TextFiles`` below ``root``."""

    def __init__(
        self, root: Path, read: ReadText = read_attribute, write: WriteText = write_attribute
    ) -> None:
        self._root, self._read, self._write = root, read, write

    def get(self, name: str) -> str | None:
        try:
            return self._read(self._root / name)
        except OSError:
            return None

    def put(self, name: str, text: str) -> str:
        try:
            self._write(self._root / name, f"{text}\n")
        except OSError as error:
            return fault_name(error)
        return ""

    def names(self, folder: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(path.name for path in (self._root / folder).iterdir()))
        except OSError:
            return ()
