"""A second opinion on JSON Schema for tests: the keywords that grammars promise, no others."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,),
    "number": (int, float), "boolean": (bool,), "null": (type(None),),
}  # fmt: skip


def valid(value: Any, schema: Any) -> bool:
    if schema is True:
        return True
    if "anyOf" in schema:
        return any(valid(value, option) for option in schema["anyOf"])
    if "enum" in schema:
        return any(value == item and type(value) is type(item) for item in schema["enum"])
    kind = schema.get("type")
    if kind and not isinstance(value, _TYPES[kind]):
        return False
    if isinstance(value, bool):
        return kind in (None, "boolean")
    checks: dict[type, Callable[[Any, Any], bool]] = {
        dict: _object, list: _array, str: _string, int: _whole,
    }  # fmt: skip
    check = checks.get(type(value))
    return check is None or check(value, schema)


def _object(value: dict[str, Any], schema: Any) -> bool:
    properties = schema.get("properties", {})
    more = schema.get("additionalProperties", not properties)
    return all(name in value for name in schema.get("required", [])) and all(
        valid(item, properties[name])
        if name in properties
        else (more is not False and valid(item, more))
        for name, item in value.items()
    )


def _array(value: list[Any], schema: Any) -> bool:
    fits = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 1 << 30)
    return fits and all(valid(item, schema.get("items", True)) for item in value)


def _string(value: str, schema: Any) -> bool:
    fits = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 1 << 30)
    return fits and bool(re.search(schema.get("pattern", ""), value))


def _whole(value: int, schema: Any) -> bool:
    return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))
