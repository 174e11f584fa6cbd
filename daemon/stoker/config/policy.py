"""What a signed policy may set: the keys that a reload takes over, but for who the device is.

A policy is a file like stoker.toml that an update installs. It is read before the files in
/etc, which are the word of whoever owns the device and win. Decides nothing but which keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from stoker.config.changes import LIVE
from stoker.errors import ConfigInvalid

ALLOWED: Final = tuple(key for key in LIVE if not key.startswith("device."))
"""Full keys, and sections with a closing dot."""


def check(file: str, table: Mapping[str, object]) -> None:
    """Raises ConfigInvalid naming the first key that is the device's own to set. Whether a
    value is right is seen when all files are read together.
    """
    for key in _keys(table, ""):
        if not _allowed(key):
            raise ConfigInvalid(
                f"cannot read policy: {file}: {key}: a policy may not set it",
                hint="it may set what the comments in stoker.toml call live",
                details={"path": key, "file": file},
            )


def _allowed(key: str) -> bool:
    sections = tuple(item for item in ALLOWED if item.endswith("."))
    return key in ALLOWED or f"{key}.".startswith(sections)


def _keys(table: Mapping[str, object], path: str) -> Iterator[str]:
    """The keys that hold values; an empty table counts as one, since it may mean something."""
    for name, value in table.items():
        here = f"{path}.{name}" if path else name
        if isinstance(value, Mapping) and value:
            yield from _keys(value, here)
        else:
            yield here
