"""D-Bus arguments as Python values, bounded by their number as well as their bytes.

A million bytes are a million Python objects and over a second of the main loop, in which
nobody else is answered. Counting looks at each container once and at no plain value.
"""

from __future__ import annotations

from typing import Any, Final

from stoker.errors import RequestTooLarge

MAX_VALUES: Final = 20_000  # 1024 messages make about 9,000
_DENSEST: Final = 33  # values in one byte: a number in 32 structures


def unpack(args: Any, max_values: int = MAX_VALUES) -> tuple[Any, ...]:
    """The values of a tuple variant. Raises RequestTooLarge."""
    if args.get_size() * _DENSEST > max_values and _count(args, max_values) < 0:
        raise RequestTooLarge(
            f"cannot take the call: it has more than {max_values} values",
            details={"limit_values": max_values},
        )
    values: tuple[Any, ...] = args.unpack()
    return values


def _count(value: Any, left: int) -> int:
    """How much of ``left`` the inside of ``value`` leaves; negative = too much."""
    kind = value.get_type_string()
    if kind[0] not in "va({m":
        return left
    size = value.n_children()
    left -= size
    # arrays of plain values have nothing inside worth a look
    if left < 0 or (kind[0] == "a" and kind[1] not in "va({m"):
        return left
    for index in range(size):
        left = _count(value.get_child_value(index), left)
        if left < 0:
            break
    return left
