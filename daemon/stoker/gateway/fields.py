"""Reads the fields of a request's JSON, strictly: a wrong type is an error with its path.

``null`` reads as absent, unknown fields are never looked at. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from stoker.gateway.problems import Problem


class Fields:
    """One JSON object at ``path`` ("" = the body)."""

    def __init__(self, data: object, path: str = "") -> None:
        if not isinstance(data, Mapping):
            raise refusal(path or "body", "must be a JSON object")
        self._data: Mapping[str, Any] = data
        self._path = path

    def has(self, key: str) -> bool:
        return self._data.get(key) is not None

    def raw(self, key: str) -> Any:
        return self._data.get(key)

    def path(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def refuse(self, key: str, reason: str) -> Problem:
        return refusal(self.path(key), reason)

    def text(self, key: str, default: str = "") -> str:
        value = self._data.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.refuse(key, "must be a string")
        return sound(value, self.path(key))

    def flag(self, key: str, default: bool = False) -> bool:
        value = self._data.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refuse(key, "must be true or false")
        return value

    def whole(self, key: str, low: int, high: int) -> int | None:
        value = self._data.get(key)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.refuse(key, f"must be a whole number of {low}..{high}")
        return value

    def number(self, key: str, low: float, high: float) -> float | None:
        value = self._data.get(key)
        if value is None:
            return None
        wrong = isinstance(value, bool) or not isinstance(value, int | float)
        if wrong or not low <= value <= high:  # NaN is in no range; a long number is no float
            raise self.refuse(key, f"must be a number of {low:g}..{high:g}")
        return float(value)

    def items(self, key: str, most: int) -> Iterator[tuple[str, Any]]:
        """(path, element) of a list."""
        value = self._data.get(key)
        if not isinstance(value, list):
            raise self.refuse(key, "must be a list")
        if len(value) > most:
            raise self.refuse(key, f"has {len(value)} elements, the limit is {most}")
        for index, item in enumerate(value):
            yield f"{self.path(key)}[{index}]", item

    def inner(self, key: str) -> Fields | None:
        value = self._data.get(key)
        return None if value is None else Fields(value, self.path(key))

    def each(self, read: Mapping[str, Callable[[Fields, str], Any]]) -> Iterator[tuple[str, Any]]:
        """(key, value) for those keys that are there."""
        for key, reader in read.items():
            if self.has(key):
                yield key, reader(self, key)


def refusal(path: str, reason: str) -> Problem:
    return Problem("invalid-request", f"cannot read request: {path}: {reason}", param=path)


def sound(value: str, path: str) -> str:
    """The text, if D-Bus can carry it (UTF-8 without NUL)."""
    if "\0" in value:
        raise refusal(path, "has a NUL character")
    if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
        raise refusal(path, "has a lone surrogate, which is no Unicode text")
    return value
