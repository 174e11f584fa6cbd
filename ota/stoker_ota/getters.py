"""Parse, don't poke: typed getters for TOML tables, JSON objects and unpacked a{sv}.

A ``Table`` is read once at the door; every key that nobody asked for is an error
that names its full path. Errors are built by the caller's ``fail`` so that the same
getters serve configuration (ConfigInvalid), requests (InvalidRequest) and signed
documents (BadDocument).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn

Fail = Callable[[str, str], Exception]
"""(path, reason) -> the typed error to raise."""
_TOLD_BITS: Final = 128


class Table:
    """One mapping at a known path; ``finish()`` refuses keys that were not read."""

    def __init__(self, data: object, fail: Fail, path: str = "") -> None:
        self._fail = fail
        self.path = path
        if not isinstance(data, Mapping):
            self.refuse("", f"expected a table, got {_kind(data)}")
        self._data: dict[str, object] = {}
        for key, value in data.items():
            if not isinstance(key, str):
                self.refuse("", f"keys must be strings, got {_kind(key)}")
            self._data[key] = value
        self._seen: set[str] = set()

    def at(self, key: str) -> str:
        """Full dotted path of ``key``."""
        return f"{self.path}.{key}" if self.path and key else (key or self.path)

    def refuse(self, key: str, reason: str) -> NoReturn:
        raise self._fail(self.at(key), reason)

    def has(self, key: str) -> bool:
        return key in self._data

    def keys(self) -> tuple[str, ...]:
        return tuple(self._data)

    def raw(self, key: str, default: object = None) -> object:
        self._seen.add(key)
        return self._data.get(key, default)

    def text(self, key: str, default: str | None = None, *, max_bytes: int | None = None) -> str:
        value = self._take(key, default)
        if not isinstance(value, str):
            self.refuse(key, f"expected a string, got {_kind(value)}")
        if max_bytes is not None and len(value.encode("utf-8", "surrogatepass")) > max_bytes:
            self.refuse(key, f"longer than {max_bytes} bytes")
        return value

    def choice(self, key: str, allowed: Sequence[str], default: str | None = None) -> str:
        value = self.text(key, default)
        if value not in allowed:
            words = ", ".join(word for word in allowed if word)  # "" = the key may be left empty
            self.refuse(key, f"{value!r} is not one of {words}")
        return value

    def flag(self, key: str, default: bool | None = None) -> bool:
        value = self._take(key, default)
        if not isinstance(value, bool):
            self.refuse(key, f"expected true or false, got {_kind(value)}")
        return value

    def whole(self, key: str, default: int | None = None, *, low: int, high: int) -> int:
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse(key, f"expected a whole number, got {_kind(value)}")
        if not low <= value <= high:
            self.refuse(key, f"{_told(value)} is outside {low}..{high}")
        return value

    def number(self, key: str, default: float | None = None, *, low: float, high: float) -> float:
        """``low`` and ``high`` are finite, and so is what comes."""
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(key, f"expected a number, got {_kind(value)}")
        # Compared as it is: a whole number may be too long for a float. NaN is in no range.
        if not low <= value <= high:
            self.refuse(key, f"{_told(value)} is outside {low}..{high}")
        return float(value)

    def texts(
        self, key: str, default: Sequence[str] | None = None, *, max_items: int = 64
    ) -> tuple[str, ...]:
        value = self._take(key, default)
        if isinstance(value, str) or not isinstance(value, Sequence):
            self.refuse(key, f"expected a list of strings, got {_kind(value)}")
        if len(value) > max_items:
            self.refuse(key, f"more than {max_items} items")
        out: list[str] = []
        for index, item in enumerate(value):
            if not isinstance(item, str):
                self.refuse(f"{key}[{index}]", f"expected a string, got {_kind(item)}")
            out.append(item)
        return tuple(out)

    def table(self, key: str) -> Table:
        """A sub-table; an absent one reads as empty."""
        value = self.raw(key)
        return Table({} if value is None else value, self._fail, self.at(key))

    def tables(self, key: str, *, max_items: int = 1024) -> tuple[Table, ...]:
        """A list of tables (array of tables, or ``aa{ss}``); absent reads as empty."""
        value = self.raw(key)
        if value is None:
            return ()
        if isinstance(value, str) or not isinstance(value, Sequence):
            self.refuse(key, f"expected a list of tables, got {_kind(value)}")
        if len(value) > max_items:
            self.refuse(key, f"more than {max_items} items")
        return tuple(
            Table(item, self._fail, self.at(f"{key}[{index}]")) for index, item in enumerate(value)
        )

    def finish(self) -> None:
        """Refuse what nobody read: a misspelt key must not be a silent default."""
        unknown = sorted(set(self._data) - self._seen)
        if unknown:
            near = difflib.get_close_matches(unknown[0], sorted(self._seen), n=1)
            self.refuse(
                unknown[0], f"unknown key; did you mean {near[0]}?" if near else "unknown key"
            )

    def _take(self, key: str, default: object) -> object:
        self._seen.add(key)
        if key in self._data:
            return self._data[key]
        if default is None:
            self.refuse(key, "missing")
        return default


def _told(value: float) -> str:
    """For a message; Python refuses to write whole numbers of thousands of digits."""
    if isinstance(value, int) and value.bit_length() > _TOLD_BITS:
        return f"a number of {value.bit_length()} bits"
    return str(value)


def _kind(value: object) -> str:
    names = {
        dict: "a table",
        list: "a list",
        str: "a string",
        bool: "a boolean",
        type(None): "nothing",
    }
    return names.get(type(value), f"a {type(value).__name__}")
