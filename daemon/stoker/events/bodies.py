"""Frozen dataclasses to sparse JSON bodies and back, by their annotations.

Knows a closed set of field kinds; a test builds every message, so that a new kind
without a reader cannot ship. Sizes are limited before anything is kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Final

from stoker.getters import Table

MAX_TEXT_BYTES: Final = 8 * 1024 * 1024
MAX_ITEMS: Final = 4096

Nested = Mapping[str, type]
"""Classes that may stand inside others, by the name the annotation uses."""


def sparse(value: object) -> dict[str, object]:
    """The fields that differ from their defaults, as plain JSON values."""
    out: dict[str, object] = {}
    for spec in _specs(type(value)):
        item = getattr(value, spec.name)
        if item != spec.default:
            out[spec.name] = _plain(item)
    return out


def build(cls: type, table: Table, nested: Nested) -> object:
    """The value of a table; missing keys without default and unknown keys are refused."""
    values = {
        spec.name: _read(spec, table, nested)
        for spec in _specs(cls)
        if table.has(spec.name) or spec.default is dataclasses.MISSING
    }
    table.finish()
    return cls(**values)


@dataclasses.dataclass(frozen=True, slots=True)
class _Spec:
    name: str
    kind: str
    default: object


def _plain(item: object) -> object:
    if isinstance(item, tuple):
        return [_plain(part) for part in item]
    if dataclasses.is_dataclass(item):
        return sparse(item)
    return dict(item) if isinstance(item, Mapping) else item


def _read(spec: _Spec, table: Table, nested: Nested) -> object:
    simple = _SIMPLE.get(spec.kind)
    if simple is not None:
        return simple(table, spec.name)
    if spec.kind in nested:
        return build(nested[spec.kind], table.table(spec.name), nested)
    cls = nested[spec.kind.removeprefix("tuple[").removesuffix(", ...]")]
    items = table.tables(spec.name, max_items=MAX_ITEMS)
    return tuple(build(cls, item, nested) for item in items)


def _pair(table: Table, key: str) -> tuple[int, int]:
    value = table.raw(key)
    if not isinstance(value, list) or len(value) != 2 or not all(type(v) is int for v in value):
        table.refuse(key, "expected two whole numbers")
    return value[0], value[1]


def _mapping(table: Table, key: str) -> Mapping[str, object]:
    value = table.raw(key)
    if not isinstance(value, dict):
        table.refuse(key, "expected a table")
    return value


_SIMPLE: Final[dict[str, Callable[[Table, str], object]]] = {
    "str": lambda table, key: table.text(key, max_bytes=MAX_TEXT_BYTES),
    "int": lambda table, key: table.whole(key, low=-(1 << 63), high=(1 << 64) - 1),
    "float": lambda table, key: table.number(key, low=-1e18, high=1e18),
    "bool": lambda table, key: table.flag(key),
    "tuple[str, ...]": lambda table, key: table.texts(key),
    "tuple[int, int] | None": _pair,
    "Mapping[str, object]": _mapping,
    "Mapping[str, object] | None": _mapping,
}


def _default(item: dataclasses.Field[object]) -> object:
    if item.default_factory is not dataclasses.MISSING:
        return item.default_factory()
    return item.default


def _specs(cls: type) -> tuple[_Spec, ...]:
    found = _SPECS.get(cls)
    if found is None:
        found = tuple(
            _Spec(item.name, str(item.type), _default(item)) for item in dataclasses.fields(cls)
        )
        _SPECS[cls] = found
    return found


_SPECS: dict[type, tuple[_Spec, ...]] = {}
