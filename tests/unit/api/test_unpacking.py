"""Calls that would cost the main loop seconds are refused before they are unpacked."""

from __future__ import annotations

from typing import Any

import pytest
from gi.repository import GLib

from stoker.api.unpacking import MAX_VALUES, unpack
from stoker.errors import RequestTooLarge

MANY = MAX_VALUES + 1


def _call(value: Any) -> Any:
    return GLib.Variant("(a{sv}a{sv})", ({"stop": value}, {}))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("ay", bytes(MANY)),
        ("ab", [True] * MANY),
        ("as", [""] * MANY),
        ("a(y)", [(1,)] * (MAX_VALUES // 2 + 1)),
        ("aas", [["a", "b", "c"]] * (MAX_VALUES // 4 + 1)),
        ("a{sv}", {str(n): GLib.Variant("s", "") for n in range(MAX_VALUES // 4 + 1)}),
        ("av", [GLib.Variant("v", GLib.Variant("ay", bytes(100)))] * (MAX_VALUES // 100)),
        ("v", GLib.Variant("v", GLib.Variant("as", [""] * MANY))),
    ],
)
def test_a_call_of_too_many_values_is_refused_whatever_their_type(kind: str, value: Any) -> None:
    with pytest.raises(RequestTooLarge, match="values"):
        unpack(_call(GLib.Variant(kind, value)))


def test_the_longest_conversation_that_may_be_asked_is_not_refused() -> None:
    message = {"role": GLib.Variant("s", "user"), "content": GLib.Variant("s", "x" * 900)}
    call = _call(GLib.Variant("aa{sv}", [message] * 1024))
    assert unpack(call) == call.unpack()


def test_a_long_text_is_one_value() -> None:
    assert unpack(GLib.Variant("(s)", ("x" * 1_000_000,))) == ("x" * 1_000_000,)
