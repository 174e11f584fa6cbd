"""The typed getters: what they accept, and that every refusal names its path."""

from __future__ import annotations

import pytest

from stoker.errors import InvalidRequest, StokerError
from stoker.getters import Table


def _fail(path: str, reason: str) -> StokerError:
    return InvalidRequest(f"{path}: {reason}", details={"path": path})


def _table(data: object, path: str = "") -> Table:
    return Table(data, _fail, path)


def test_an_unread_key_is_refused_with_its_full_path() -> None:
    inner = _table({"job": {"nonsense": 1}}).table("job")
    with pytest.raises(InvalidRequest, match=r"job\.nonsense: unknown key$"):
        inner.finish()


def test_a_near_miss_is_pointed_out() -> None:
    table = _table({"max_tokns": 5})
    table.whole("max_tokens", 1, low=0, high=9)
    with pytest.raises(InvalidRequest, match="did you mean max_tokens"):
        table.finish()


def test_reading_everything_leaves_nothing_to_refuse() -> None:
    table = _table({"a": 1, "b": {"c": True}})
    table.whole("a", low=0, high=2)
    assert table.table("b").flag("c") is True
    table.finish()


@pytest.mark.parametrize("value", [True, 1.0, "1", None, [1]])
def test_whole_takes_nothing_but_whole_numbers(value: object) -> None:
    with pytest.raises(InvalidRequest, match=r"n: expected a whole number"):
        _table({"n": value}).whole("n", low=0, high=9)


@pytest.mark.parametrize("value", [-1, 10])
def test_whole_refuses_what_is_out_of_range(value: int) -> None:
    with pytest.raises(InvalidRequest, match=r"outside 0\.\.9"):
        _table({"n": value}).whole("n", low=0, high=9)


@pytest.mark.parametrize("value", [10**400, -(1 << 20_000)], ids=["400 digits", "unwritable"])
def test_a_number_that_no_float_holds_is_out_of_range_too(value: int) -> None:
    for read in (_table({"n": value}).number, _table({"n": value}).whole):
        with pytest.raises(InvalidRequest, match=r"^n: a number of \d+ bits is outside 0\.\.9$"):
            read("n", low=0, high=9)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1, 1.1])
def test_number_refuses_what_is_no_number_in_range(value: float) -> None:
    with pytest.raises(InvalidRequest, match="outside"):
        _table({"n": value}).number("n", low=0, high=1)


def test_number_takes_whole_numbers_and_refuses_booleans() -> None:
    assert _table({"n": 1}).number("n", low=0, high=1) == 1.0
    with pytest.raises(InvalidRequest, match="expected a number, got a boolean"):
        _table({"n": True}).number("n", low=0, high=1)


def test_flag_refuses_numbers_that_look_like_booleans() -> None:
    with pytest.raises(InvalidRequest, match="expected true or false"):
        _table({"f": 1}).flag("f")


def test_text_counts_bytes_not_characters() -> None:
    assert _table({"t": "äö"}).text("t", max_bytes=4) == "äö"
    with pytest.raises(InvalidRequest, match="longer than 3 bytes"):
        _table({"t": "äö"}).text("t", max_bytes=3)


def test_text_measures_lone_surrogates_without_falling_over() -> None:
    assert _table({"t": "\ud800"}).text("t", max_bytes=3) == "\ud800"


def test_choice_lists_what_is_allowed() -> None:
    with pytest.raises(InvalidRequest, match="'c' is not one of a, b"):
        _table({"x": "c"}).choice("x", ("a", "b"))
    with pytest.raises(InvalidRequest, match="'c' is not one of a, b"):
        _table({"x": "c"}).choice("x", ("", "a", "b"), "")  # what is empty cannot be shown


def test_a_missing_key_without_default_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"job\.prompt: missing"):
        _table({}, "job").text("prompt")


@pytest.mark.parametrize(
    ("value", "reason"), [("ab", "a list"), ([1], r"a\[0\]"), (["x"] * 3, "2")]
)
def test_texts_refuses_strings_wrong_items_and_too_many(value: object, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        _table({"a": value}).texts("a", max_items=2)


def test_a_table_that_is_none_is_refused_with_its_kind() -> None:
    with pytest.raises(InvalidRequest, match="x: expected a table, got a list"):
        _table({"x": []}).table("x")


def test_tables_number_their_items_in_paths() -> None:
    first, second = _table({"m": [{"a": "x"}, {"a": 1}]}).tables("m")
    assert first.text("a") == "x"
    with pytest.raises(InvalidRequest, match=r"m\[1\]\.a: expected a string"):
        second.text("a")
    with pytest.raises(InvalidRequest, match="more than 1 items"):
        _table({"m": [{}, {}]}).tables("m", max_items=1)


def test_keys_that_are_no_strings_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="keys must be strings"):
        _table({1: 2})
