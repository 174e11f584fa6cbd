"""JSON as signed documents use it: one meaning for one text, bounded before it is kept.

Repeated keys, NaN, huge numbers, half characters, deep nesting and bytes after the end are refused:
two readers must never see two documents in the same bytes.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Sequence
from typing import Final, NoReturn

from stoker_ota.errors import BadDocument, TooLarge

MAX_DEPTH: Final = 16
MAX_INTEGER_DIGITS: Final = 19


def loads(data: bytes, *, max_bytes: int, what: str) -> object:
    """The value of UTF-8 JSON ``data``. Raises TooLarge, BadDocument; ``what`` names it."""
    if len(data) > max_bytes:
        raise TooLarge(f"cannot read {what}: {len(data)} bytes, at most {max_bytes} are allowed")
    try:
        text = data.decode("utf-8")
        _check_depth(text, what)
        value: object = json.loads(
            text,
            object_pairs_hook=_once,
            parse_constant=_no_constant,
            parse_int=_bounded_int,
            parse_float=_no_exotic_float,
        )
        if "\\ud" in text.lower():  # an escaped surrogate: half a pair is no text
            _text(value).encode()
        return value
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError are both
        raise BadDocument(f"cannot read {what}: {error}") from error


def dumps(value: object) -> bytes:
    """Canonical bytes: sorted keys, no spaces, UTF-8. Same value, same bytes. BadDocument for what
    JSON has no word for: NaN, infinity, a date of TOML, half a character.
    """
    try:
        return _text(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BadDocument(f"cannot write the document: {error}") from error


def _text(value: object) -> str:
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def unbase64(text: str, what: str) -> bytes:
    """Standard base64 with padding and nothing else. Raises BadDocument."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadDocument(f"cannot read {what}: it is not base64") from error
    if base64.b64encode(data).decode() != text:  # unused bits set: a second form of the same bytes
        raise BadDocument(f"cannot read {what}: it is not canonical base64")
    return data


def _check_depth(text: str, what: str) -> None:
    depth = deepest = 0
    quoted = escaped = False
    for char in text:
        if quoted:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                quoted = False
        elif char == '"':
            quoted = True
        elif char in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]}":
            depth -= 1
    if deepest > MAX_DEPTH:
        raise BadDocument(f"cannot read {what}: nested {deepest} deep, at most {MAX_DEPTH}")


def _once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return found


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _bounded_int(text: str) -> int:
    if len(text.lstrip("-")) > MAX_INTEGER_DIGITS:
        raise ValueError("a whole number is too long")
    return int(text)


def _no_exotic_float(text: str) -> float:
    if len(text) > 32:
        raise ValueError("a number is too long")
    value = float(text)
    if not math.isfinite(value):  # 1e999: what is read must be possible to write
        raise ValueError("a number is too large")
    return value
