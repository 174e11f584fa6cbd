"""JSON text of a caller as values; what is wrong is told in words that a caller understands.

Not told: Python's own advice on long numbers and deep nesting. Bounds on bytes and values are
for those who ask. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, NoReturn

MAX_DIGITS: Final = 1000  # Python reads no whole number of more than 4300
Pairs = Callable[[list[tuple[str, Any]]], Any]


def read(text: str, pairs: Pairs | None = None) -> Any:
    """The value; ``pairs`` makes each object. Raises ValueError with the reason."""
    try:
        return json.loads(
            text, parse_constant=_no_number, parse_int=_whole, object_pairs_hook=pairs
        )
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """``pairs`` for ``read``: a key that comes twice has no meaning."""
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key comes twice")
    return table


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


def _whole(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number has {len(text.lstrip('-'))} digits")
    return int(text)
