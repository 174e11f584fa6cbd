"""The chat templates of real models, as llama.cpp's sources keep them: each renders or says why."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from bench import random_model, random_vocabulary
from bench.peers import vendored
from bench.runner_client import RunnerClient

from stoker.errors import InvalidRequest
from stoker.events.prompt import Message, Shape
from stoker.events.runner import Generate
from stoker.runner.composer import Composer
from stoker.runner.template import ChatTemplate
from stoker.runner.tool_stream import ToolStream

pytestmark = pytest.mark.real
NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "get_weather", "description": "Tells it.", "parameters": SCHEMA}
TOOLS = json.dumps([{"type": "function", "function": FUNCTION}])
CALL = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
CALLS = json.dumps([{"id": "call00001", "type": "function", "function": CALL}])
PLAIN = (Message("user", "Hi there"),)
SYSTEM = (Message("system", "Be brief."), *PLAIN)
TALK = (
    *SYSTEM,
    Message("assistant", "", tool_calls=CALLS),
    Message("tool", "12 degrees", tool_call_id="call00001", name="get_weather"),
)
REFUSED: Final = "refused: cannot render messages: the model's chat template: "
# what a template refuses, and the reason it gives
REFUSES: Final = {
    "fireworks-ai-llama-3-firefunction-v2": dict.fromkeys(
        ("plain", "system", "tools", "talk"), "'functions' is undefined"
    ),
    "CohereForAI-c4ai-command-r-plus-tool_use": dict.fromkeys(
        ("tools", "talk"), "has no attribute 'description'"
    ),  # of a parameter
    "Kimi-K2-Instruct": {"talk": "'append' of 'list' object is unsafe"},
    "Kimi-K2-Thinking": {"talk": "'append' of 'list' object is unsafe"},
}
# models that are shown no earlier calls
FORGETS: Final = ("LFM2-8B-A1B", "LFM2.5-Instruct", "ibm-granite-granite-3.3-2B-Instruct")
DEEPSEEK: Final = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n"
    '```json\n{"city": "Paris"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
)
DEEPSEEK_31: Final = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
    '{"city": "Paris"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
)
TAGS: Final = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n"
    "</tool_call>"
)
JSON: Final = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
LLAMA: Final = '{"name": "get_weather", "parameters": {"city": "Paris"}}'
WRITES: Final = {
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": DEEPSEEK,
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": DEEPSEEK,
    "llama-cpp-deepseek-r1": DEEPSEEK,
    "deepseek-ai-DeepSeek-V3.1": DEEPSEEK_31,
    "Qwen3-Coder": TAGS,
    "Qwen3.5-4B": TAGS,
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": TAGS,
    "StepFun3.5-Flash": TAGS,
    "Qwen-Qwen2.5-7B-Instruct": JSON,
    "Qwen-Qwen3-0.6B": JSON,
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": JSON,
    "meta-llama-Llama-3.2-3B-Instruct": LLAMA,
    "google-gemma-2-2b-it": JSON,  # by our own words
}


@pytest.fixture(scope="module")
def templates() -> dict[str, str]:
    folder = vendored() / "models" / "templates"
    return {path.stem: path.read_text() for path in sorted(folder.glob("*.jinja"))}


def rendered(template: ChatTemplate, messages: tuple[Message, ...], tools: str) -> str:
    try:
        return template.render(messages, now=NOW, tools=tools)
    except InvalidRequest as error:
        return f"refused: {error.message}"


def complaints(name: str, source: str) -> list[str]:
    template = ChatTemplate(source, bos="<s>", eos="</s>")
    found = []
    for kind, messages, tools, wanted in (
        ("plain", PLAIN, "", ["Hi there"]),
        ("system", SYSTEM, "", ["Hi there", "Be brief."]),
        ("tools", SYSTEM, TOOLS, ["Hi there", "Be brief.", "get_weather", "city"]),
        ("talk", TALK, TOOLS, ["Hi there", "12 degrees", *["Paris"] * (name not in FORGETS)]),
    ):
        text = rendered(template, messages, tools)
        reason = REFUSES.get(name, {}).get(kind)
        words = wanted if reason is None else [REFUSED, reason]
        lost = [word for word in words if word not in text]
        found += [f"{name}, {kind}: {word!r} not in {text[:300]!r}" for word in lost]
    return found


def test_every_template_shows_what_it_was_given_or_says_why_not(templates: dict[str, str]) -> None:
    assert len(templates) > 50
    assert [line for name in templates for line in complaints(name, templates[name])] == []


@pytest.mark.parametrize("name", WRITES)
def test_calls_are_read_as_the_model_writes_them(name: str, templates: dict[str, str]) -> None:
    form = ChatTemplate(templates[name]).tool_form
    tools = ToolStream(form, {"get_weather": SCHEMA}, lambda: "id")
    composer = Composer((), reasoning=True, inside=False, tools=tools)
    text = "".join(composer.feed(bytes((byte,)))[0] for byte in WRITES[name].encode())
    assert text + composer.finish()[0] == ""
    calls = composer.take_calls()
    assert [(call.name, call.arguments) for call in calls] == [tuple(CALL.values())]


@pytest.mark.parametrize("name", ["Qwen3-Coder", "Qwen3.5-4B", "llama-cpp-deepseek-r1",
                                  "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
                                  "deepseek-ai-DeepSeek-V3.1", "Qwen-Qwen2.5-7B-Instruct",
                                  "Qwen-Qwen3-0.6B"])  # fmt: skip
def test_templates_write_earlier_calls_as_their_models_do(
    name: str, templates: dict[str, str]
) -> None:
    """So what is read is what they were trained on. R1's forgets the last mark after one call."""
    shown = ChatTemplate(templates[name]).render(TALK, now=NOW, tools=TOOLS)
    assert WRITES[name].removesuffix("<｜tool▁calls▁end｜>") in shown


def test_refusals_that_are_expected_are_of_templates_that_exist(templates: dict[str, str]) -> None:
    assert set(REFUSES) | set(FORGETS) | set(WRITES) <= set(templates)


def test_a_models_second_template_serves_the_requests_with_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = random_vocabulary.tiny()
    key = b"tokenizer.chat_template.tool_use"
    text = b"{{ raise_exception('second of ' ~ tools|length) }}"
    named = b"".join(
        (len(key).to_bytes(8, "little"), key, (8).to_bytes(4, "little"),
         len(text).to_bytes(8, "little"), text)
    )  # fmt: skip
    both = replace(words, keys=words.keys + named, count=words.count + 1)
    monkeypatch.setattr(random_model, "tiny", lambda: both)
    with RunnerClient("llama") as client:
        client.hello()
        client.load(random_model.random_model("deepseek2-tiny", tmp_path), context_tokens=512)
        ask = Generate("plain", messages=PLAIN, max_tokens=1)
        assert client.ask(ask)[-1].done is not None
        ask = replace(ask, job="tools", shape=Shape(tools=TOOLS))
        error = client.ask(ask)[-1].error
        assert error is not None
        assert "second of 1" in str(error)
