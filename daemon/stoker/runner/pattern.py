"""A JSON Schema ``pattern`` to GBNF, inside a JSON string. Pure.

Takes what a grammar can say of a regular expression: literals, classes, groups, choices,
repetitions, anchors at the two ends. Look-around, references and inner anchors are refused.
A pattern without anchors matches anywhere, so anything may stand before and after it.
"""

from __future__ import annotations

import importlib
import re
from typing import Any, Final

from stoker.errors import GrammarInvalid
from stoker.runner.literals import code

# the standard library's own reader of regular expressions, under the only name without a warning
_parser: Any = importlib.import_module("re._parser")
sre: Any = importlib.import_module("re._constants")

MAX_BYTES: Final = 1024
_MAX_REPEAT: Final = 1000
_PLAIN: Final = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7E), (0x80, 0x10FFFF))
"""Characters that stand for themselves in a JSON string."""
_ESCAPED: Final = {8: "b", 9: "t", 10: "n", 12: "f", 13: "r", 34: '\\"', 92: "\\\\"}
_DIGIT: Final = ((0x30, 0x39),)
_WORD: Final = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE: Final = ((9, 13), (0x20, 0x20))
_CLASSES: Final = {"DIGIT": _DIGIT, "WORD": _WORD, "SPACE": _SPACE}

Ranges = tuple[tuple[int, int], ...]


def to_gbnf(text: object, path: str) -> str:
    """An expression for the inside of the string; raises GrammarInvalid."""
    if not isinstance(text, str) or len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise _wrong(path, f"not a text of at most {MAX_BYTES} bytes")
    try:
        found = list(_parser.parse(text, 0))
    except (re.error, RecursionError, OverflowError, ValueError) as error:
        raise _wrong(path, f"no regular expression: {error}") from error
    begin = bool(found) and found[0] in _anchors("AT_BEGINNING", "AT_BEGINNING_STRING")
    end = bool(found) and found[-1] in _anchors("AT_END", "AT_END_STRING")
    inside = found[begin : len(found) - end]
    body = _sequence(inside, path, 0)
    return " ".join(
        part for part in ("" if begin else "char*", body, "" if end else "char*") if part
    )


def _anchors(*names: str) -> list[tuple[Any, Any]]:
    return [(sre.AT, getattr(sre, name)) for name in names]


def _sequence(items: Any, path: str, depth: int) -> str:
    if depth > 32:
        raise _wrong(path, "nested too deep")
    return " ".join(_item(kind, value, path, depth) for kind, value in items) or '""'


def _item(kind: Any, value: Any, path: str, depth: int) -> str:
    if kind is sre.LITERAL:
        return _set(((value, value),), path)
    if kind is sre.NOT_LITERAL:
        return _set(_without(((value, value),)), path)
    if kind is sre.ANY:
        return _set(_without(((10, 10), (13, 13))), path)
    if kind is sre.IN:
        return _set(_members(value, path), path)
    if kind is sre.BRANCH:
        parts = [_sequence(part, path, depth + 1) for part in value[1]]
        return f"({' | '.join(parts)})"
    if kind is sre.SUBPATTERN:
        if value[1] or value[2]:
            raise _wrong(path, "flags are not supported")
        return f"({_sequence(value[3], path, depth + 1)})"
    if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT):
        least, most, inner = value
        if least > _MAX_REPEAT or (most is not sre.MAXREPEAT and most > _MAX_REPEAT):
            raise _wrong(path, f"more than {_MAX_REPEAT} repetitions")
        top = "" if most is sre.MAXREPEAT else str(most)
        return f"({_sequence(inner, path, depth + 1)}){{{least},{top}}}"
    raise _wrong(path, f"{str(kind).lower()} is not supported")


def _members(items: Any, path: str) -> Ranges:
    negated = bool(items) and items[0][0] is sre.NEGATE
    found: list[tuple[int, int]] = []
    for kind, value in items[negated:]:
        if kind is sre.LITERAL:
            found.append((value, value))
        elif kind is sre.RANGE:
            found.append(value)
        elif kind is sre.CATEGORY:
            word = str(value).removeprefix("CATEGORY_")
            ranges = _CLASSES.get(word.removeprefix("NOT_"))
            if ranges is None:
                raise _wrong(path, f"class {word.lower()} is not supported")
            found += _without(ranges) if word.startswith("NOT_") else ranges
        else:
            raise _wrong(path, f"{str(kind).lower()} is not supported")
    return _without(tuple(found)) if negated else tuple(found)


def _without(ranges: Ranges) -> Ranges:
    out = []
    low = 0
    for first, last in sorted(ranges):
        if first > low:
            out.append((low, first - 1))
        low = max(low, last + 1)
    if low <= 0x10FFFF:
        out.append((low, 0x10FFFF))
    return tuple(out)


def _set(ranges: Ranges, path: str) -> str:
    """One character of a JSON string: as it is, or by its escape where it needs one."""
    plain = [
        (max(low, first), min(high, last))
        for low, high in ranges
        for first, last in _PLAIN
        if max(low, first) <= min(high, last)
    ]
    parts = []
    if plain:
        inside = "".join(f"{code(low)}-{code(high)}" for low, high in plain)
        parts.append(f"[{inside}]")
    for char, escape in _ESCAPED.items():
        if any(low <= char <= high for low, high in ranges):
            parts.append(f'"\\\\{escape}"')
    if not parts:
        raise _wrong(path, "a character that JSON text cannot hold")
    return parts[0] if len(parts) == 1 else f"({' | '.join(parts)})"


def _wrong(path: str, reason: str) -> GrammarInvalid:
    return GrammarInvalid(f"cannot use the schema: {path}: {reason}", details={"path": path})
