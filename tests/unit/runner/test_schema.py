"""JSON Schema as grammars: what they accept, what is refused, and in what time."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from tests.fakes.hostile_shapes import REFUSED

from stoker.errors import GrammarInvalid
from stoker.runner import gbnf, schema
from stoker.runner.matcher import Matcher


def accepts(document: object, value: Any) -> bool:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    grammar = gbnf.parse(schema.grammar_of(document), max_bytes=gbnf.MAX_MADE_BYTES)
    follow = Matcher(grammar)
    point = follow.feed(follow.start, text.encode())
    return point is not None and point.complete


_PERSON = {
    "type": "object",
    "properties": {
        "a": {"type": "integer"},
        "b": {"type": "string"},
        "c": {"type": "array", "items": {"type": "number"}, "maxItems": 2},
    },
    "required": ["b"],
}
_LIST = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["next"],
        }
    },
    "$ref": "#/$defs/node",
}
_BASE = {"properties": {"x": {"type": "integer"}}, "required": ["x"]}


@pytest.mark.parametrize(
    ("document", "good", "bad"),
    [
        (
            _PERSON,
            [{"b": "x"}, {"a": 1, "b": "x"}, {"b": "ä\n", "c": [1, -2.5e3]}, '{ "b": "" }'],
            [{"a": 1}, {"b": 1}, {"b": "x", "z": 1}, {"b": "", "c": [1, 2, 3]}, '{"b":"x",}'],
        ),
        (True, [1, None, [True, {"k": "v"}], '"\\u00e9"'], ["tru", "01", '"a\nb"', "[1,]"]),
        ({"enum": ['a"b', "a\\c", 1, None, "ä", "ab"]}, ['"ab"', '"a\\"b"', "null"], ["2", '"a"']),
        ({"const": {"k": [1]}}, ['{"k": [1]}'], ['{"k": [2]}']),
        (_LIST, [{"next": {"next": None}}], [{"next": 1}, {}]),
        ({"additionalProperties": {"type": "integer"}}, [{}, {"x": 1, "y": 2}], [{"x": "1"}]),
        ({"required": ["k"]}, [{"k": [1]}], [{}, [1]]),
        ({"allOf": [_BASE, {"properties": {"y": {"const": 1}}}]}, [{"x": 1, "y": 1}], [{"y": 1}]),
        (
            {**_BASE, "anyOf": [{"required": ["k"]}, {"properties": {"n": {"type": "null"}}}]},
            [{"x": 1, "k": 2}, {"x": 1, "n": None}],
            [{"k": 2}],
        ),
        ({"type": ["string", "null"]}, ['"x"', None], [1]),
        ({"type": "integer", "minimum": -3, "maximum": 12}, [-3, 0, 12], [13, -4, "1.0"]),
        ({"type": "integer", "exclusiveMinimum": -1}, [0, 7], [-1]),
        ({"type": "string", "minLength": 2, "maxLength": 3}, ['"ab"', '"äöü"'], ['"a"', '"abcd"']),
        ({"type": "string", "pattern": "^[a-z]+-\\d{2}$"}, ['"ab-12"'], ['"ab-1"', '"-12"']),
        ({"type": "string", "pattern": "a(b|c)?"}, ['"xxa"', '"acx"'], ['"b"']),
        ({"type": "string", "pattern": '^"\\\\$'}, ['"\\"\\\\"'], ['""']),
        ({"type": "string", "format": "date-time"}, ['"2024-02-30T10:00:00Z"'], ['"2024-02-30"']),
        ({"prefixItems": [{"type": "integer"}], "items": {"type": "string"}}, [[1, "a"]], [["a"]]),
        ({"type": "array", "items": {}, "minItems": 1, "maxItems": 2}, [[1], [1, "x"]], [[]]),
        ({"type": "array", "maxItems": 0}, [[]], [[1]]),
        ({"type": "object"}, [{}, {"a": {"b": [1]}}], [[1], "1"]),
    ],
)
def test_a_schema_accepts_its_values_and_no_others(
    document: object, good: list[Any], bad: list[Any]
) -> None:
    assert [value for value in good if not accepts(document, value)] == []
    assert [value for value in bad if accepts(document, value)] == []


@pytest.mark.parametrize("document", REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_a_grammar_is_a_typed_error_in_time(document: object) -> None:
    start = time.process_time()
    with pytest.raises(GrammarInvalid):
        Matcher(gbnf.parse(schema.grammar_of(document), max_bytes=gbnf.MAX_MADE_BYTES))
    assert time.process_time() - start < 3.0


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "x" * 70_000, ""])
def test_text_that_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(GrammarInvalid):
        schema.to_gbnf(text)


@pytest.mark.parametrize("index", ["²", "9" * 5000, "-1", "2", "x"])
def test_a_reference_into_a_list_leads_to_an_item_or_is_refused(index: str) -> None:
    def referring(to: str) -> object:
        return {"properties": {"a": {"$ref": f"#/k/{to}"}}, "k": [{"type": "string"}]}

    assert accepts(referring("0"), {"a": "x"})
    with pytest.raises(GrammarInvalid):
        schema.grammar_of(referring(index))


def test_the_path_of_a_wrong_keyword_is_told() -> None:
    with pytest.raises(GrammarInvalid) as caught:
        schema.grammar_of({"properties": {"a": {"items": {"type": "text"}}}})
    assert caught.value.details["path"] == "$.a.items.type"


def test_many_optional_properties_stay_within_the_bounds() -> None:
    document = {"properties": {f"key{n}": {"type": "integer"} for n in range(200)}}
    assert accepts(document, {"key5": 1, "key199": 2})
    assert accepts(document, {})
