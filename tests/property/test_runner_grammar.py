"""Any grammar text ends in a grammar or a typed error; cuts never matter; schemas keep faith."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.schema_check import valid

from stoker.errors import GrammarInvalid
from stoker.runner import gbnf, schema
from stoker.runner.matcher import Matcher, Point

_LETTERS = 'ab"\\ ä☃'
_names = st.sampled_from(["a", "b", "name", "ä", 'q"', "back\\slash"])
_scalars = st.one_of(
    st.just({"type": "null"}),
    st.just({"type": "boolean"}),
    st.just({"type": "number"}),
    st.builds(
        lambda low, size: {"type": "integer", "minimum": low, "maximum": low + size},
        st.integers(-50, 50),
        st.integers(0, 60),
    ),
    st.builds(
        lambda low, size: {"type": "string", "minLength": low, "maxLength": low + size},
        st.integers(0, 3),
        st.integers(0, 3),
    ),
    st.builds(
        lambda items: {"enum": items},
        st.lists(st.text(_LETTERS, max_size=4), min_size=1, max_size=6),
    ),
    st.just({"type": "string", "pattern": "^[a-c]{1,3}x?$"}),
)


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects = st.dictionaries(_names, inner, min_size=1, max_size=3).flatmap(
        lambda properties: st.builds(
            lambda required, more: {
                "type": "object",
                "properties": properties,
                "required": sorted(required),
                "additionalProperties": more,
            },
            st.sets(st.sampled_from(sorted(properties))),
            st.booleans(),
        )
    )
    arrays = st.builds(
        lambda items, low, size: {
            "type": "array", "items": items, "minItems": low, "maxItems": low + size,
        },
        inner,
        st.integers(0, 2),
        st.integers(0, 2),
    )  # fmt: skip
    unions = st.builds(lambda some: {"anyOf": some}, st.lists(inner, min_size=1, max_size=3))
    return st.one_of(objects, arrays, unions)


schemas = st.recursive(_scalars, _objects, max_leaves=6)
_TRIED = [*range(0x20, 0x7F), 0x0A, *map(ord, "ä☃")]


def _matcher(document: object) -> Matcher:
    return Matcher(gbnf.parse(schema.grammar_of(document), max_bytes=gbnf.MAX_MADE_BYTES))


@settings(deadline=None, max_examples=120)
@given(schemas, st.randoms(use_true_random=False))
def test_whatever_the_grammar_leads_to_is_json_that_the_schema_accepts(
    document: Any, random: Any
) -> None:
    follow = _matcher(document)
    point, text = follow.start, ""
    for _ in range(400):
        if point.complete and (point.exhausted or random.random() < 0.3):
            break
        open_ways = [
            (char, after)
            for char in map(chr, _TRIED)
            if (after := follow.feed(point, char.encode())) is not None
        ]
        # towards the end: quotes and brackets close what is open
        closing = [way for way in open_ways if way[0] in '"}]']
        char, point = random.choice(closing if closing and len(text) > 60 else open_ways)
        text += char
    if point.complete:
        assert valid(json.loads(text), document), text


def _value(document: Any, random: Any) -> Any:
    """Some value of the schema, properties in order."""
    if "anyOf" in document:
        return _value(random.choice(document["anyOf"]), random)
    if "enum" in document:
        return random.choice(document["enum"])
    match document["type"]:
        case "null":
            return None
        case "boolean":
            return random.random() < 0.5
        case "number":
            return random.choice([0, -1.5, 2e-7, 123456])
        case "integer":
            return random.randint(document["minimum"], document["maximum"])
        case "string" if "pattern" in document:
            return random.choice(["a", "abc", "bx"])
        case "string":
            size = random.randint(document["minLength"], document["maxLength"])
            return "".join(random.choice('aä"\\\n☃') for _ in range(size))
        case "array":
            size = random.randint(document["minItems"], document["maxItems"])
            return [_value(document["items"], random) for _ in range(size)]
    return {
        name: _value(inner, random)
        for name, inner in document["properties"].items()
        if name in document["required"] or random.random() < 0.5
    }


@settings(deadline=None, max_examples=200)
@given(schemas, st.randoms(use_true_random=False))
def test_every_value_of_a_schema_is_accepted_however_it_is_cut(document: Any, random: Any) -> None:
    data = json.dumps(_value(document, random), ensure_ascii=False).encode()
    follow = _matcher(document)
    whole = follow.feed(follow.start, data)
    assert whole is not None, data
    assert whole.complete
    point: Point | None = follow.start
    while data:
        assert point is not None
        size = random.randint(1, 4)
        point, data = follow.feed(point, data[:size]), data[size:]
    assert point == whole


_soup = st.lists(
    st.sampled_from(
        ["root", " ", "::=", "\n", '"', "a", "(", ")", "[", "]", "^", "-", "|", "*", "+", "?",
         "{", "}", ",", "2", "\\", "x", "#", ".", "root ::= ", '"a"', "[a-z]", "b", "é", "\0"]
    ),
    max_size=40,
)  # fmt: skip


@settings(deadline=None, max_examples=400)
@given(_soup, st.text(max_size=8))
def test_any_text_is_a_grammar_or_a_typed_error(parts: list[str], text: str) -> None:
    with contextlib.suppress(GrammarInvalid):
        follow = Matcher(gbnf.parse("".join(parts)))
        follow.feed(follow.start, text.encode("utf-8", "replace"))


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(
            ["type", "properties", "items", "$ref", "anyOf", "allOf", "enum", "const", "required",
             "pattern", "minLength", "maxItems", "additionalProperties", "a", "$defs"]
        ),
        inner | st.sampled_from(["object", "array", "string", "#", "#/a", "integer"]),
        max_size=4,
    ),
    max_leaves=20,
)  # fmt: skip


@settings(deadline=None, max_examples=400)
@given(_json)
def test_any_json_is_a_schema_or_a_typed_error(document: Any) -> None:
    with contextlib.suppress(GrammarInvalid):
        _matcher(document)
