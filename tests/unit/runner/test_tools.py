"""Tool calls as model families write them: golden texts, cut at every byte."""

from __future__ import annotations

import datetime
import itertools
import json
from typing import Any

import pytest

from stoker.errors import GrammarInvalid, InvalidRequest
from stoker.events.prompt import Message
from stoker.runner import shaping, tool_forms
from stoker.runner.composer import Composer
from stoker.runner.matcher import Matcher
from stoker.runner.template import CHATML, ChatTemplate
from stoker.runner.tool_forms import DEEPSEEK, DEEPSEEK_31, FORMS, HERMES, LLAMA, TAGS, Form
from stoker.runner.tool_stream import ToolStream

PARIS = ("get_weather", {"city": "Paris"})
SUM = ("add", {"a": 1, "b": [2, {"c": "é</tool"}]})
_OSLO = '{"city": "Oslo"}'
_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
OFFERED: dict[str, object] = {"get_weather": _SCHEMA, "add": {"type": "object"}}

GOLDEN: dict[str, tuple[Form, str, str, list[Any]]] = {
    "qwen": (
        HERMES,
        'I look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n'
        "</tool_call>",
        "I look.\n",
        [PARIS],
    ),
    "qwen, two calls": (
        HERMES,
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": [2, {"c": "é</tool"}]}}\n'
        "</tool_call>\n",
        "",
        [PARIS, SUM],
    ),
    "hermes, text around": (
        HERMES,
        'Yes. <tool_call>{"arguments": {"city": "Paris"}, "name": "get_weather"}</tool_call> Ok. ',
        "Yes.  Ok. ",
        [PARIS],
    ),
    "hermes, arguments as text": (
        HERMES,
        '<tool_call>{"name":"get_weather","arguments":"{\\"city\\": \\"Paris\\"}"}</tool_call>',
        "",
        [PARIS],
    ),
    "hermes, the end mark is missing": (
        HERMES,
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool',
        "",
        [PARIS],
    ),
    "hermes, broken": (
        HERMES,
        'a <tool_call>{"name": "get_weather", "arg</tool_call> b',
        'a <tool_call>{"name": "get_weather", "arg</tool_call> b',
        [],
    ),
    "hermes, the end mark in an argument": (
        HERMES,
        '<tool_call>\n{"name": "add", "arguments": {"a": "</tool_call> <tool_call>", "b": '
        '"\\"</tool_call>"}}\n</tool_call>\n<tool_call>\n{"name": "add"}\n</tool_call>',
        "",
        [("add", {"a": "</tool_call> <tool_call>", "b": '"</tool_call>'}), ("add", {})],
    ),
    "hermes, a broken call before a whole one": (
        HERMES,
        '<tool_call>{"name": "get_weather", "arg</tool_call>\n<tool_call>\n{"name": "add"}\n'
        "</tool_call> b",
        '<tool_call>{"name": "get_weather", "arg</tool_call>\n b',
        [("add", {})],
    ),
    "hermes, broken at the end, with a whole one behind": (
        HERMES,
        '<tool_call>{"name": "add</tool_call> <tool_call>{"name": "add"}',
        '<tool_call>{"name": "add</tool_call> ',
        [("add", {})],
    ),
    "tags": (
        TAGS,
        "I look.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
        "</function>\n</tool_call>",
        "I look.\n",
        [PARIS],
    ),
    "tags in Hermes' form, no line breaks, two calls": (
        HERMES,
        "<tool_call><function=get_weather><parameter=city>Paris</parameter></function></tool_call>"
        "<tool_call><function=add></function></tool_call>",
        "",
        [PARIS, ("add", {})],
    ),
    "tags, marks and lines in a value": (
        TAGS,
        "<tool_call>\n<function=get_weather>\n<parameter=city>\n\n</tool_call>\n</parameter>.\n\n"
        "</parameter>\n</function>\n</tool_call>",
        "",
        [("get_weather", {"city": "\n</tool_call>\n</parameter>.\n"})],
    ),
    "tags, a call that is not closed before a whole one": (
        TAGS,
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</tool_call>\n<tool_call>\n"
        "<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</tool_call>\n",
        [PARIS],
    ),
    "tags with JSON": (
        TAGS,
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
        "",
        [PARIS],
    ),
    "hermes, only talk of it": (HERMES, "use <tool_cal or <tool", "use <tool_cal or <tool", []),
    "deepseek r1": (
        DEEPSEEK,
        "Well.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n"
        '```json\n{"city": "Paris"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function'
        f"<｜tool▁sep｜>get_weather\n```json\n{_OSLO}\n```<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜>",
        "Well.",
        [PARIS, ("get_weather", {"city": "Oslo"})],
    ),
    "deepseek v3.1": (
        DEEPSEEK_31,
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
        '{"city": "Paris"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        "",
        [PARIS],
    ),
    "deepseek, marks in an argument": (
        DEEPSEEK_31,
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>"
        '{"a": "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"}<｜tool▁call▁end｜>'
        "<｜tool▁call▁begin｜>add<｜tool▁sep｜><｜tool▁call▁end｜><｜tool▁calls▁end｜>.",
        ".",
        [("add", {"a": "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"}), ("add", {})],
    ),
    "deepseek, broken": (
        DEEPSEEK,
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁calls▁end｜>x",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁calls▁end｜>x",
        [],
    ),
    "llama 3": (LLAMA, ' {"name": "get_weather", "parameters": {"city": "Paris"}}', "", [PARIS]),
    "llama 3, python tag": (
        LLAMA,
        '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}; '
        '{"name": "get_weather", "parameters": {"city": "Oslo"}}',
        "",
        [PARIS, ("get_weather", {"city": "Oslo"})],
    ),
    "llama 3, text before the tag": (
        LLAMA,
        'I call. <|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}',
        "I call. ",
        [PARIS],
    ),
    "llama 3, JSON that is no call": (LLAMA, '{"name": "Bob"}', '{"name": "Bob"}', []),
    "llama 3, plain text": (LLAMA, "It is {warm} here.", "It is {warm} here.", []),
}


def run(form: Form, parts: list[bytes]) -> tuple[str, list[Any]]:
    ids = itertools.count()
    tools = ToolStream(form, OFFERED, lambda: f"c{next(ids)}")
    composer = Composer((), reasoning=True, inside=False, tools=tools)
    text = "".join(composer.feed(part)[0] for part in parts) + composer.finish()[0]
    calls = [(call.name, json.loads(call.arguments)) for call in composer.take_calls()]
    assert composer.called is bool(calls)
    return text, calls


@pytest.mark.parametrize(("form", "text", "said", "calls"), GOLDEN.values(), ids=GOLDEN.keys())
def test_golden_text_gives_its_calls_wherever_it_is_cut(
    form: Form, text: str, said: str, calls: list[object]
) -> None:
    data = text.encode()
    for at in range(len(data) + 1):
        assert run(form, [data[:at], data[at:]]) == (said, calls), at
    assert run(form, [bytes((byte,)) for byte in data]) == (said, calls)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_no_part_of_a_call_is_given_out_before_it_is_known_to_be_none(form: Form) -> None:
    text = next(text for f, text, _, calls in GOLDEN.values() if f is form and calls)
    stream = ToolStream(form, OFFERED, lambda: "id")
    said = ""
    for char in text:
        said += stream.feed(char)
        assert not any(said.endswith(form.start[:n]) for n in range(1, len(form.start) + 1))


@pytest.mark.parametrize("number", ["1e999", "NaN", "-Infinity"])
def test_a_number_that_json_has_no_word_for_makes_no_call(number: str) -> None:
    """Arguments are promised to be JSON, which an app may read strictly."""
    text = f'<tool_call>\n{{"name": "add", "arguments": {{"a": {number}}}}}\n</tool_call>'
    assert run(HERMES, [text.encode()]) == (text, [])


def test_a_call_without_an_end_is_given_up_at_a_bound() -> None:
    stream = ToolStream(HERMES, OFFERED, lambda: "id")
    out = stream.feed("<tool_call>" + "x" * (1 << 20))
    assert len(out) == (1 << 20) + 11


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_the_grammar_of_a_call_makes_what_the_parser_reads(form: Form) -> None:
    for choice, wanted in (("get_weather", PARIS), ("required", ("add", {}))):
        follow = Matcher(shaping.calls_grammar(form, OFFERED, choice))
        body = json.dumps(wanted[1])
        city = "<parameter=city>\nParis\n</parameter>\n" if wanted is PARIS else ""
        text = {
            "hermes": f'<tool_call>\n{{"name": "{wanted[0]}", "arguments": {body}}}\n</tool_call>',
            "llama": f'{{"name": "{wanted[0]}", "parameters": {body}}}',
            "tags": f"<tool_call>\n<function={wanted[0]}>\n{city}</function>\n</tool_call>",
            "deepseek-v3.1": f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{wanted[0]}<｜tool▁sep｜>"
            f"{body}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            "deepseek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>"
            f"{wanted[0]}\n```json\n{body}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        }[form.name]
        point = follow.feed(follow.start, text.encode())
        assert point is not None
        assert point.exhausted
        assert run(form, [text.encode()]) == ("", [wanted])
    with pytest.raises(InvalidRequest):
        shaping.calls_grammar(form, OFFERED, "other")
    with pytest.raises(GrammarInvalid) as caught:
        shaping.calls_grammar(form, {"f": {"type": "nothing"}}, "required")
    assert caught.value.details["path"] == "tools.f.parameters.type"


NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
TOOLS = json.dumps(
    [{"type": "function", "function": {"name": "get_weather", "parameters": _SCHEMA}}]
)
_CALL = [{"id": "1", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}]
TALK = (
    Message("user", "Weather?"),
    Message("assistant", "", tool_calls=json.dumps(_CALL)),
    Message("tool", "12 °C", tool_call_id="1", name="get_weather"),
)


@pytest.mark.parametrize(
    ("source", "form"),
    [
        (CHATML, HERMES),
        ("{{ tools }}<tool_call>", HERMES),
        ("{{ tools }}<｜tool▁calls▁begin｜>```json <tool_call>", DEEPSEEK),
        ("{{ messages }}<｜tool▁calls▁begin｜>```json", DEEPSEEK),
        ("{{ messages }}<｜tool▁calls▁begin｜>", DEEPSEEK_31),
        ("{{ tools }}<tool_call><function=f><parameter=p>", TAGS),
        ("{{ tools }}<tool_call><function=f>{json}", HERMES),
        ("{{ tools }}<|python_tag|>", LLAMA),
        ('{{ tools }}{"name": f, "parameters": x}', LLAMA),
        ("{{ tools }}", HERMES),
        ("no tools, but <|python_tag|>", HERMES),  # taught by our own words
    ],
)
def test_the_template_tells_the_form(source: str, form: Form) -> None:
    assert ChatTemplate(source).tool_form is form


def test_a_template_gets_tools_and_calls_as_tables() -> None:
    source = (
        "{{ tools[0].function.name }}|{% for m in messages %}{% if m.tool_calls %}"
        "{{ m.tool_calls[0].function.arguments.city }}|{% endif %}{{ m.tool_call_id }}{% endfor %}"
    )
    assert ChatTemplate(source).render(TALK, now=NOW, tools=TOOLS) == "get_weather|Paris|1"


def test_a_template_may_join_arguments_to_text_or_write_them_as_json() -> None:
    source = (
        "{{ tools|length }}{% for m in messages if m.tool_calls %}"
        "{% set a = m.tool_calls[0].function.arguments %}"
        "{{ '!' + a + '!' }}{{ a ~ '!' }}{{ a | tojson }}!{{ a.city }}{% endfor %}"
    )
    shown = ChatTemplate(source).render(TALK, now=NOW, tools=TOOLS)
    assert shown == '1!{"city": "Paris"}!{"city": "Paris"}!{"city": "Paris"}!Paris'


def test_deepseek_gets_no_content_beside_calls_and_is_told_tools_in_its_own_form() -> None:
    source = (
        "<｜tool▁calls▁begin｜>```{% for m in messages %}{{ m.role }}{% if m.tool_calls %}"
        "{{ m.content is none }}{% else %}{{ m.content }}{% endif %}|{% endfor %}"
    )
    shown = ChatTemplate(source).render(TALK, now=NOW, tools=TOOLS)
    assert shown.endswith("user" + "Weather?|assistantTrue|tool12 °C|")
    assert "function<｜tool▁sep｜>NAME\n```json" in shown
    assert '"name": "get_weather"' in shown
    assert "<tool_" not in shown


def test_a_template_without_tools_is_told_in_words() -> None:
    shown = ChatTemplate(CHATML).render(
        (Message("system", "Be kind."), *TALK), now=NOW, tools=TOOLS
    )
    assert "<|im_start|>system\nBe kind.\n\nYou can call" in shown
    assert '"name": "get_weather"' in shown
    assert '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}' in shown
    assert "<|im_start|>user\n<tool_response>\n12 °C\n</tool_response>" in shown
    assert "<tool_call>" not in ChatTemplate(CHATML).render(TALK[:1], now=NOW)


def test_a_second_template_for_tools_serves_the_requests_that_bring_some() -> None:
    second = ChatTemplate("{{ tools|length }}<tool_call><function=f><parameter=p>")
    both = ChatTemplate("{{ messages|length }}", tool_use=second)
    assert both.render(TALK, now=NOW) == "3"
    assert both.render(TALK, now=NOW, tools=TOOLS).startswith("1<tool_call>")
    assert both.tool_form is TAGS


@pytest.mark.parametrize("tools", ["{", "7", "[1]", '[{"function": {}}]'])
def test_tools_that_are_none_are_refused(tools: str) -> None:
    with pytest.raises(InvalidRequest):
        ChatTemplate(CHATML).render(TALK, now=NOW, tools=tools)


@pytest.mark.parametrize(
    ("source", "end"),
    [
        ("{{ enable_thinking }}{{ messages[0].content }}", "FalseWeather?"),
        ("{{ messages[0].content }}<think>\n", "Weather?<think>\n\n</think>\n\n"),
        ("{% if 0 %}</think>{% endif %}A:", "A:<think>\n\n</think>\n\n"),
        ("A:", "A:"),
    ],
)
def test_no_thinking_is_the_templates_switch_or_an_empty_thought(source: str, end: str) -> None:
    assert ChatTemplate(source).render(TALK, now=NOW, thinking=False) == end
    assert "False" not in ChatTemplate(source).render(TALK, now=NOW)


def test_marks_are_shown_even_where_they_are_control_tokens() -> None:
    assert {HERMES.start, DEEPSEEK.end, LLAMA.start} <= set(tool_forms.MARKS)
