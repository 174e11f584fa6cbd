"""OpenAI's request bodies become the agent's keys; what is wrong is told with its path."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.gateway import asking
from stoker.gateway.problems import Problem

HI = [{"role": "user", "content": "hi"}]


def chat(**fields: Any) -> dict[str, Any]:
    """The values of the one job, without their signatures."""
    (pairs,) = asking.chat({"messages": HI, **fields}).requests
    return {key: value for key, (_kind, value) in pairs.items()}


def test_a_plain_question_says_nothing_more_than_it_must() -> None:
    asked = asking.chat({"messages": HI})
    assert asked.requests == ({"messages": ("aa{ss}", HI)},)
    assert asked.options == {"format": ("s", "ndjson")}


def test_settings_go_with_their_dbus_types() -> None:
    asked = asking.chat(
        {"messages": HI, "temperature": 1, "top_k": 5, "frequency_penalty": 0.5, "stop": "x",
         "lora": {"style": 0.5}, "reasoning_tokens": 64, "grammar": 'root ::= "a"', "model": "m"}
    )  # fmt: skip
    (pairs,) = asked.requests
    assert pairs["temperature"] == ("d", 1.0)
    assert pairs["top_k"] == ("x", 5)
    assert pairs["frequency_penalty"] == ("d", 0.5)
    assert pairs["stop"] == ("as", ["x"])
    assert pairs["lora"] == ("a{sd}", {"style": 0.5})
    assert pairs["reasoning_tokens"] == ("i", 64)
    assert pairs["grammar"] == ("s", 'root ::= "a"')
    assert pairs["model"] == ("s", "m")


def test_both_names_of_max_tokens_are_known_and_the_newer_wins() -> None:
    assert chat(max_tokens=7)["max_tokens"] == 7
    assert chat(max_tokens=7, max_completion_tokens=9)["max_tokens"] == 9


def test_content_may_be_parts_and_roles_may_have_other_names() -> None:
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "Be "},
                                          {"type": "text", "text": "kind."}]},
        {"role": "user", "content": "hi", "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]},
        {"role": "tool", "content": "4", "tool_call_id": "c1", "name": "sum"},
    ]  # fmt: skip
    assert chat(messages=messages)["messages"] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "", "tool_calls": '[{"id":"c1"}]'},
        {"role": "tool", "content": "4", "tool_call_id": "c1", "name": "sum"},
    ]


def test_tools_and_formats_travel_as_json() -> None:
    tools = [{"type": "function", "function": {"name": "sum"}}]
    choice = {"type": "function", "function": {"name": "sum"}}
    form = {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}
    found = chat(tools=tools, tool_choice=choice, response_format=form)
    assert json.loads(found["tools"]) == tools
    assert found["tool_choice"] == "sum"
    assert json.loads(found["response_format"]) == form
    assert "response_format" not in chat(response_format={"type": "text"})
    for nothing in ("auto", "none"):
        assert "tool_choice" not in chat(tool_choice=nothing)  # means nothing without tools
    # A call that must be made and has no tool is the agent's to refuse: text would be a lie.
    assert chat(tool_choice="required")["tool_choice"] == "required"
    assert chat(tool_choice=choice)["tool_choice"] == "sum"


def test_thoughts_without_a_budget_have_no_number() -> None:
    assert "reasoning_tokens" not in chat(reasoning_tokens=-1)
    assert chat(reasoning_tokens=0)["reasoning_tokens"] == 0


def test_logprobs() -> None:
    assert chat(logprobs=True, top_logprobs=3)["logprobs"] == 3
    assert chat(logprobs=True)["logprobs"] == 0
    assert "logprobs" not in chat(logprobs=False, top_logprobs=3)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(1, 16))
def test_every_choice_has_a_seed_of_its_own_that_the_agent_takes(seed: int, n: int) -> None:
    seeds = [pairs["seed"][1] for pairs in asking.chat({"messages": HI, "seed": seed, "n": n})
             .requests]  # fmt: skip
    assert len(set(seeds)) == n
    assert all(0 <= each < 2**32 for each in seeds)


def test_a_completion_is_raw_and_each_prompt_has_n_choices() -> None:
    asked = asking.completion({"prompt": ["a", "b"], "n": 2, "echo": True, "logprobs": 1})
    assert [pairs["prompt"][1] for pairs in asked.requests] == ["a", "a", "b", "b"]
    assert asked.echo == ("a", "a", "b", "b")
    assert asked.requests[0]["raw"] == ("b", True)
    assert asked.requests[0]["logprobs"] == ("i", 1)


@pytest.mark.parametrize(
    ("tier", "job_class"), [("flex", "background"), ("priority", "interactive"), ("auto", None)]
)
def test_the_service_tier_is_a_class(tier: str, job_class: str | None) -> None:
    options = asking.chat({"messages": HI, "service_tier": tier}).options
    assert options.get("class", ("s", None))[1] == job_class


def test_requests_for_titles_and_tags_run_in_the_background() -> None:
    errand = [{"role": "user", "content": "### Task:\nGenerate a concise title."}]
    assert asking.chat({"messages": errand}).options["class"] == ("s", "background")
    assert "class" not in asking.chat({"messages": HI + errand}).options


def test_unknown_fields_and_nulls_are_nothing() -> None:
    plain = chat()
    assert chat(user="ann", store=True, metadata={"a": 1}, temperature=None, tools=[]) == plain


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": ""}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
         "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": "a\0b"}]}, "messages[0].content"),
        ({"temperature": True}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"seed": 2**63}, "seed"),
        ({"n": 17}, "n"),
        ({"stop": ["a", 1]}, "stop[1]"),
        ({"stream": "yes"}, "stream"),
        ({"tools": {}}, "tools"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.function.name"),
        ({"lora": {"a": "b"}}, "lora.a"),
        ({"lora": {"a": 16.5}}, "lora.a"),
        ({"lora": {"a": 10**400}}, "lora.a"),
        ({"temperature": 10**400}, "temperature"),
        ({"presence_penalty": -(10**400)}, "presence_penalty"),
        ({"stop": 5}, "stop"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(Problem) as wrong:
        asking.chat({"messages": HI, **fields})
    assert (wrong.value.code, wrong.value.param) == ("invalid-request", path)


def test_token_ids_are_refused_as_text_of_another_vocabulary() -> None:
    for body in ({"input": [1, 2]}, {"input": [[1, 2]]}):
        with pytest.raises(Problem, match="vocabulary"):
            asking.embedding(body)
    no_texts: list[object] = [None, {}, 5]
    for strange in no_texts:
        with pytest.raises(Problem, match="input: must be a string or a list of strings"):
            asking.embedding({"input": strange})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
KEYS = ["messages", "prompt", "input", "n", "stop", "tools", "tool_choice", "response_format",
        "logprobs", "lora", "seed", "max_tokens", "stream", "stream_options", "model", "content",
        "role", "temperature", "top_p", "min_p", "top_k", "repeat_penalty", "frequency_penalty",
        "presence_penalty", "reasoning_tokens", "top_logprobs"]  # fmt: skip


@given(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=5) | JSON)
def test_any_json_is_read_or_refused_as_a_problem(body: Any) -> None:
    for read in (asking.chat, asking.completion, asking.embedding):
        with contextlib.suppress(Problem):  # any other exception is a fault
            read(body)
