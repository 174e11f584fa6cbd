"""JSON of callers: what is wrong is said without Python's own advice."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.api import json_text

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)  # fmt: skip


@given(VALUES)
def test_what_was_written_is_read(value: object) -> None:
    assert json_text.read(json.dumps(value)) == value
    assert json_text.read(json.dumps(value), json_text.once) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("9" * 5000, "a number has 5000 digits"),
        ("-" + "9" * 1001, "a number has 1001 digits"),
        ("[" * 100_000, "nested too deeply"),
        ("NaN", "NaN is no number"),
        ("[-Infinity]", "-Infinity is no number"),
        ("", "Expecting value"),
    ],
)
def test_what_is_wrong_is_said_in_words_for_callers(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}"):
        json_text.read(text)


def test_a_key_that_comes_twice_is_refused_where_it_must_be() -> None:
    assert json_text.read('{"a": 1, "a": 2}') == {"a": 2}
    with pytest.raises(ValueError, match="a key comes twice"):
        json_text.read('[{"a": 1, "a": 2}]', json_text.once)
