"""Calls in tags: what the words of a value mean, and the grammar that makes such calls."""

from __future__ import annotations

import json

import pytest

from stoker.events.prompt import ToolCall
from stoker.runner import shaping, tool_forms, tool_tags
from stoker.runner.matcher import Matcher
from stoker.runner.tool_forms import HERMES, TAGS
from stoker.runner.tool_stream import MAX_CALL_CHARS, MAX_END_MARKS, ToolStream

SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "yes": {"type": "boolean"},
        "list": {"type": "array", "items": {"type": "integer"}},
        "maybe": {"type": ["string", "null"]},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "unit": {"enum": ["c", "f"]},
        "place": {"$ref": "#/$defs/place"},
        "free": {},
    },
    "required": ["text"],
    "$defs": {"place": {"type": "object", "properties": {"x": {"type": "integer"}}}},
}


def call(**values: str) -> str:
    inner = "".join(f"<parameter={key}>\n{text}\n</parameter>\n" for key, text in values.items())
    return f"<tool_call>\n<function=f>\n{inner}</function>\n</tool_call>"


def read(text: str) -> object:
    stream = ToolStream(TAGS, {"f": SCHEMA}, lambda: "id")
    said = stream.feed(text) + stream.finish()
    found = stream.take()
    return [json.loads(one.arguments) for one in found] if found else said


@pytest.mark.parametrize(
    ("key", "written", "meant"),
    [
        ("text", "1", "1"),
        ("text", "null", "null"),
        ("text", ' {"a": 1}', ' {"a": 1}'),
        ("count", "1", 1),
        ("count", "one", "one"),
        ("share", "2", 2),
        ("share", "0.5", 0.5),
        ("yes", "true", True),
        ("yes", "True", True),
        ("list", "[1, 2]", [1, 2]),
        ("maybe", "null", None),
        ("maybe", "1", "1"),
        ("either", "1", 1),
        ("either", '"1"', '"1"'),
        ("unit", "c", "c"),
        ("place", '{"x": 1}', {"x": 1}),
        ("free", "1", 1),
        ("free", "None", None),
        ("free", "a\n\nb", "a\n\nb"),
        ("unknown", "[", "["),
    ],
)
def test_the_schema_tells_what_a_value_means(key: str, written: str, meant: object) -> None:
    assert read(call(**{key: written})) == [{key: meant}]


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n<function=f>\n<parameter=a>\n1\n</function>\n</tool_call>",
        "<tool_call>\n<function=f>\nwords</function>\n</tool_call>",
        "<tool_call>\n<function=>\n</function>\n</tool_call>",
        "<tool_call>\n<function=f>\n</tool_call>",
    ],
)
def test_tags_that_do_not_fit_are_the_text_they_are(text: str) -> None:
    assert read(text) == text


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        (call(text="any\nlines < here\n\n"), True),
        (call(text="", count="12"), True),
        (call(text="x", yes="true", list="[1, 2]", unit="f", place='{"x":1}'), True),
        (call(count="12"), False),  # text is required
        (call(text="x", count="twelve"), False),
        (call(text="x", unit="k"), False),
        (call(yes="true", text="x"), False),  # in the order of the schema
    ],
)
def test_a_call_that_must_be_made_is_made_as_the_schema_says(text: str, allowed: bool) -> None:
    follow = Matcher(shaping.calls_grammar(TAGS, {"f": SCHEMA}, "required"))
    point = follow.feed(follow.start, text.encode())
    assert (point is not None and point.exhausted) is allowed
    if allowed:
        assert isinstance(read(text), list)


@pytest.mark.parametrize(
    ("schema", "values", "allowed"),
    [
        ({"type": "object"}, {"a": "1", "b": "x"}, True),
        ({"type": "object", "additionalProperties": False}, {"a": "1"}, False),
        ({"type": "object", "additionalProperties": False}, {}, True),
        ({"allOf": [{"properties": {"a": {"type": "integer"}}}]}, {"a": "1"}, True),
        ({"allOf": [{"properties": {"a": {"type": "integer"}}}]}, {"a": "x"}, False),
    ],
)
def test_tools_without_named_arguments_and_merged_schemas(
    schema: object, values: dict[str, str], allowed: bool
) -> None:
    follow = Matcher(shaping.calls_grammar(TAGS, {"f": schema}, "f"))
    point = follow.feed(follow.start, call(**values).encode())
    assert (point is not None and point.exhausted) is allowed


def test_a_reference_to_itself_does_not_hang() -> None:
    loop = {"properties": {"a": {"$ref": "#/properties/a"}}}
    assert tool_tags.kinds(loop["properties"]["a"], loop) == frozenset()


def test_a_reference_that_is_named_often_is_followed_once() -> None:
    """Followed each time, thirty names of it eight levels deep would take days."""
    option = {"$ref": "#/$defs/x"}
    many = {"$defs": {"x": {"anyOf": [{"type": "integer"}, *[option] * 30]}}}
    assert tool_tags.kinds(option, many) == frozenset()
    plain = {"$defs": {"x": {"type": "integer"}}}
    assert tool_tags.kinds({"anyOf": [option] * 30}, plain) == {"integer"}


def test_a_type_that_is_named_with_a_description_is_that_type() -> None:
    """As pydantic writes it; and references lead through lists, too."""
    root = {"$defs": {"n": {"type": "integer"}}, "anyOf": [{"type": "boolean"}]}
    assert tool_tags.kinds({"allOf": [{"$ref": "#/$defs/n"}], "title": "N"}, root) == {"integer"}
    assert tool_tags.kinds({"$ref": "#/anyOf/0"}, root) == {"boolean"}
    assert tool_tags.kinds({"$ref": "#/anyOf/1"}, root) == frozenset()


def test_reading_says_where_an_end_mark_may_stand_in_a_text() -> None:
    whole = tool_forms.read(HERMES, '{"name": "f", "arguments": {"a": "b"}}', {})
    assert whole.calls == (ToolCall("", "f", '{"a": "b"}'),)
    assert tool_forms.read(HERMES, '{"name": "f", "arguments": {"a": "b', {}).cut
    assert not tool_forms.read(HERMES, '{"name": "f", "arguments": {"a": ', {}).cut
    assert tool_forms.read(TAGS, "<function=f><parameter=a>\nb", {}).cut
    assert not tool_forms.read(TAGS, "<function=f><parameter=a>\nb</parameter>", {}).cut


def test_end_marks_in_a_text_hold_an_answer_back_within_bounds_only() -> None:
    stream = ToolStream(HERMES, {}, lambda: "id")
    head = '<tool_call>{"name": "f", "arguments": {"a": "'
    assert stream.feed(head) == ""
    said = [stream.feed("x </tool_call>") for _ in range(MAX_END_MARKS)]
    assert said[:-1] == [""] * (MAX_END_MARKS - 1)
    assert said[-1] == head + "x </tool_call>" * MAX_END_MARKS
    stream = ToolStream(HERMES, {}, lambda: "id")
    text = head + "</tool_call>" + "y" * MAX_CALL_CHARS
    assert stream.feed(head + "</tool_call>") + stream.feed("y" * MAX_CALL_CHARS) == text
