"""The keys of a request that shape the answer: what is taken, and what is refused by its path."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stoker.api.requests import Limits, parse_ask, parse_texts
from stoker.api.session_requests import parse_append
from stoker.errors import InvalidRequest
from stoker.events.prompt import AdapterScale, Message, Shape

LIMITS = Limits()
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
TOOLS = json.dumps([TOOL])
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def shape(**keys: Any) -> Shape:
    return parse_ask({"prompt": "x", **keys}, LIMITS).shape


def form(**schema: object) -> str:
    return json.dumps({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}})


def test_nothing_said_leaves_the_answer_free() -> None:
    assert shape() == Shape()
    assert shape(response_format='{"type":"text"}', tools="[]") == Shape()


def test_response_formats_become_schemas() -> None:
    assert shape(response_format='{"type":"json_object"}').schema == '{"type":"object"}'
    assert json.loads(shape(response_format=form(**SCHEMA)).schema) == SCHEMA
    whole = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
    assert json.loads(shape(response_format=whole).schema) == SCHEMA  # from a request file


def test_all_keys_are_taken() -> None:
    found = shape(
        grammar='root ::= "a"', logprobs=0, reasoning_tokens=0, lora={"b": 0.5, "a": 1},
    )  # fmt: skip
    assert (found.grammar, found.logprobs, found.reasoning_tokens) == ('root ::= "a"', 0, 0)
    assert found.adapters == (AdapterScale("a", 1.0), AdapterScale("b", 0.5))
    called = shape(tools=TOOLS, tool_choice="add")
    assert json.loads(called.tools) == [TOOL]
    assert called.tool_choice == "add"
    ask = parse_ask({"prompt": "x", "frequency_penalty": -1.0, "presence_penalty": 2}, LIMITS)
    assert (ask.sampling.frequency_penalty, ask.sampling.presence_penalty) == (-1.0, 2.0)


def test_a_session_takes_the_same_keys() -> None:
    found = parse_append({"prompt": "x", "response_format": form(**SCHEMA)}, LIMITS)
    assert json.loads(found.shape.schema) == SCHEMA


def test_a_session_keeps_text_alone_and_says_so_before_a_call_is_lost() -> None:
    with pytest.raises(InvalidRequest, match="CreateJob") as caught:
        parse_append({"prompt": "x", "tools": TOOLS, "tool_choice": "add"}, LIMITS)
    assert caught.value.details["path"] == "request.tools"


def test_turns_of_tools_are_messages() -> None:
    calls = [{"id": "1", "type": "function", "function": {"name": "add", "arguments": "{}"}}]
    messages = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "tool_calls": json.dumps(calls)},
        {"role": "tool", "content": "3", "tool_call_id": "1", "name": "add"},
    ]
    found = parse_ask({"messages": messages}, LIMITS).messages
    assert found[1] == Message("assistant", "", tool_calls=json.dumps(calls))
    assert found[2] == Message("tool", "3", tool_call_id="1", name="add")


_NESTED: Any = 1
for _ in range(80):
    _NESTED = [_NESTED]
_MANY = json.dumps({"type": "json_schema", "json_schema": {"schema": {"enum": [1] * 11_000}}})


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ({"response_format": "{"}, "response_format"),
        ({"response_format": "7"}, "response_format"),
        ({"response_format": '{"type":"xml"}'}, "response_format"),
        ({"response_format": '{"type":"json_schema"}'}, "response_format"),
        ({"response_format": form(x="y" * 70_000)}, "response_format"),
        ({"response_format": form(x=_NESTED)}, "response_format"),
        ({"response_format": _MANY}, "response_format"),
        ({"response_format": "[" * 30_000}, "response_format"),
        ({"response_format": form(const="\ud800")}, "response_format"),
        ({"response_format": form(properties={"\udfff": {}})}, "response_format"),
        ({"response_format": form(const=float("nan"))}, "response_format"),
        ({"response_format": form(const=1).replace("1", "1e999")}, "response_format"),
        ({"tools": TOOLS.replace("object", "\\ud800")}, "tools"),
        ({"response_format": {"type": "json_schema", "json_schema": 1}}, "response_format"),
        ({"response_format": form(), "grammar": "x"}, "grammar"),
        ({"grammar": "a\0b"}, "grammar"),
        ({"grammar": "x" * 70_000}, "grammar"),
        ({"tools": "{}"}, "tools"),
        ({"tools": json.dumps([TOOL] * 129)}, "tools"),
        ({"tools": '[{"type":"other","function":{"name":"a"}}]'}, "tools[0]"),
        ({"tools": '[{"function":{}}]'}, "tools[0].function.name"),
        ({"tools": json.dumps([TOOL, TOOL])}, "tools[1].function.name"),
        ({"tools": '[{"function":{"name":"auto"}}]'}, "tools[0].function.name"),
        ({"tools": '[{"function":{"name":"a\\"b"}}]'}, "tools[0].function.name"),
        (
            {"tools": '[{"function":{"name":"a","parameters":1}}]'},
            "tools[0].function.parameters",
        ),
        ({"tools": TOOLS, "raw": True}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": "sub"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": "add", "grammar": "x"}, "tool_choice"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"reasoning_tokens": -1}, "reasoning_tokens"),
        ({"reasoning_tokens": 5, "reasoning": False}, "reasoning_tokens"),
        ({"lora": {"a": 99.0}}, "lora.a"),
        ({"lora": {str(n): 1.0 for n in range(9)}}, "lora"),
        ({"lora": "a"}, "lora"),
        ({"frequency_penalty": 3.0}, "frequency_penalty"),
    ],
)
def test_a_wrong_key_is_refused_by_its_path(keys: dict[str, object], path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        shape(**keys)
    assert caught.value.details["path"] == f"request.{path}"


@pytest.mark.parametrize(
    ("message", "key"),
    [
        ({"role": "robot", "content": "x"}, "role"),
        ({"role": "assistant"}, "content"),
        ({"role": "user", "content": "x", "tool_calls": "[]"}, "tool_calls"),
        ({"role": "assistant", "content": "x", "tool_calls": "{}"}, "tool_calls"),
        ({"role": "assistant", "tool_calls": '[{"function":{}}]'}, "tool_calls[0]"),
        (
            {"role": "assistant", "tool_calls": '[{"function":{"name":"a","arguments":1}}]'},
            "tool_calls[0].function.arguments",
        ),
        ({"role": "tool", "content": "x", "tool_call_id": "y" * 300}, "tool_call_id"),
    ],
)
def test_a_wrong_message_is_refused_by_its_path(message: dict[str, str], key: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_ask({"messages": [message]}, LIMITS)
    assert caught.value.details["path"] == f"request.messages[0].{key}"


@pytest.mark.parametrize(
    ("texts", "path"),
    [
        ([], "texts"),
        (["a"] * 65, "texts"),
        (["a", ""], "texts[1]"),
        (["x" * (1 << 20), "y"], "texts[1]"),
    ],
)
def test_texts_to_embed_are_bounded(texts: list[str], path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_texts(texts, LIMITS)
    assert caught.value.details["path"] == path
