"""Chat templates: right text for the common shapes, and no way out of the sandbox."""

from __future__ import annotations

import datetime

import pytest

from stoker.errors import InvalidRequest, ModelUnavailable
from stoker.events.prompt import Message
from stoker.runner.template import CHATML, MAX_SOURCE_BYTES, ChatTemplate

NOW = datetime.datetime(2026, 2, 3, 4, 5, tzinfo=datetime.UTC)
TALK = (Message("system", "Be brief."), Message("user", "Hi {{ 1 }} ü"))

LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}"
    "{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + m['content'] | trim"
    " + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    "{% endif %}"
)
MISTRAL = (
    "{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content'] %}"
    "{%- set rest = messages[1:] %}{%- else %}{%- set rest = messages %}{%- endif %}"
    "{{- bos_token }}{%- for m in rest %}"
    "{%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{- raise_exception('roles must alternate') }}{%- endif %}"
    "{%- if m['role'] == 'user' %}{%- if loop.first and system is defined %}"
    "{{- '[INST] ' + system + '\n\n' + m['content'] + '[/INST]' }}{%- else %}"
    "{{- '[INST] ' + m['content'] + '[/INST]' }}{%- endif %}"
    "{%- else %}{{- ' ' + m['content'] + eos_token }}{%- endif %}{%- endfor %}"
)
R1 = (
    "{% set ns = namespace(system='') %}{% for m in messages %}{% if m['role'] == 'system' %}"
    "{% set ns.system = m['content'] %}{% endif %}{% endfor %}{{ bos_token }}{{ ns.system }}"
    "{% for m in messages %}{% if m['role'] == 'user' %}{{ '<|User|>' + m['content'] }}{% endif %}"
    "{% if m['role'] == 'assistant' %}{% set content = m['content'] %}"
    "{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}"
    "{{ '<|Assistant|>' + content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|Assistant|><think>\n' }}{% endif %}"
)
DATED = "{{ strftime_now('%d %b %Y') }} {{ messages | map(attribute='role') | list | tojson }}"


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (
            CHATML,
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi {{ 1 }} ü<|im_end|>\n"
            "<|im_start|>assistant\n",
        ),
        (
            LLAMA3,
            "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi {{ 1 }} ü<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        (MISTRAL, "<s>[INST] Be brief.\n\nHi {{ 1 }} ü[/INST]"),
        (R1, "<s>Be brief.<|User|>Hi {{ 1 }} ü<|Assistant|><think>\n"),
        (DATED, '03 Feb 2026 ["system", "user"]'),
    ],
    ids=["chatml", "llama3", "mistral", "r1", "dated"],
)
def test_template_renders_as_its_model_expects(source: str, wanted: str) -> None:
    assert ChatTemplate(source, bos="<s>", eos="</s>").render(TALK, now=NOW) == wanted


def test_what_the_template_refuses_is_the_callers_error() -> None:
    template = ChatTemplate(MISTRAL, bos="<s>")
    with pytest.raises(InvalidRequest, match="roles must alternate"):
        template.render((Message("assistant", "x"),), now=NOW)


def test_earlier_thoughts_are_left_out_of_the_history() -> None:
    talk = (Message("user", "a"), Message("assistant", "hm</think>b"), Message("user", "c"))
    assert "hm" not in ChatTemplate(R1).render(talk, now=NOW)


GEMMA = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{{ m['role'] + ':' + m['content'] + '|' }}{% endfor %}"
)


@pytest.mark.parametrize(
    ("talk", "wanted"),
    [
        (TALK, "user:Be brief.\n\nHi {{ 1 }} ü|"),
        (
            (Message("system", "a"), Message("user", "b"), Message("assistant", "c"),
             Message("system", "d"), Message("user", "e"), Message("user", "f")),
            "user:a\n\nb|assistant:c|user:d\n\ne\n\nf|",
        ),
        ((Message("system", "a"),), "user:a|"),
    ],
)  # fmt: skip
def test_a_template_without_a_system_role_gets_its_words_from_the_user(
    talk: tuple[Message, ...], wanted: str
) -> None:
    assert ChatTemplate(GEMMA).render(talk, now=NOW) == wanted


def test_what_folding_does_not_help_is_refused_with_the_first_reason() -> None:
    with pytest.raises(InvalidRequest, match="System role not supported"):
        ChatTemplate(GEMMA).render((Message("system", "a"), Message("assistant", "b")), now=NOW)


def test_a_template_is_told_of_tools_only_when_there_are_some() -> None:
    source = "{% if tools is defined %}{{ tools[0].function.name }}{% endif %}{{ messages|length }}"
    tools = '[{"type": "function", "function": {"name": "f"}}]'
    assert ChatTemplate(source).render(TALK, now=NOW) == "2"
    assert ChatTemplate(source).render(TALK, now=NOW, tools=tools) == "f2"


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("{{ messages | map(attribute='role') | tojson }}", '["system", "user"]'),
        ("{{ {'a': messages | map(attribute='role')} | tojson }}", '{"a": ["system", "user"]}'),
        ("{{ 'a\nb' | indent(2) }}", "a\n  b"),
        ("{% for m in messages %}{% generation %}{{ m.role }} {% endgeneration %}{% endfor %}",
         "system user "),
    ],
)  # fmt: skip
def test_what_templates_of_hugging_face_use_is_there(source: str, wanted: str) -> None:
    assert ChatTemplate(source).render(TALK, now=NOW) == wanted


@pytest.mark.parametrize(
    "attack",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__class__.__base__.__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ self.__init__.__globals__ }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{{ strftime_now.__closure__ }}",
        "{{ (messages | map(attribute='__class__') | first).__name__ }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{{ messages.append({'role': 'x'}) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
    ],
)
def test_escape_attempts_are_refused_or_lead_nowhere(attack: str) -> None:
    try:
        out = ChatTemplate(attack).render(TALK, now=NOW)
    except (InvalidRequest, ModelUnavailable):
        return
    assert out == "", f"the template reached something: {out!r}"


@pytest.mark.parametrize(
    "bomb",
    [
        "{{ 9 ** 9 ** 9 }}",
        "{{ 'a' * 10000000000 }}",
        "{{ [0] * 10000000000 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ 'a'.ljust(10000000000) }}",
        "{{ '{:>10000000000}'.format(1) }}",
        "{{ 'a' | center(10000000000) }}",
        "{{ 'a\nb' | indent(10000000000) }}",
        "{{ 'a\nb' | indent(width='x' * 17) }}",
        "{{ messages | tojson(indent=17) }}",
        "{{ range(10000000000) | list }}",
        "{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(60) %}"
        "{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% for a in range(9999) %}{% for b in range(9999) %}{% set c = a %}"
        "{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for a in range(9999) %}{% for b in range(9999) %}{{ a }}aaaaaaaaaaaaaaaaaaaa"
        "{% endfor %}{% endfor %}",
    ],
)
def test_templates_that_want_all_time_or_memory_are_stopped(bomb: str) -> None:
    with pytest.raises((InvalidRequest, ModelUnavailable)):
        ChatTemplate(bomb).render(TALK, now=NOW, cpu_s=0.2)


def test_oversized_and_broken_sources_are_refused() -> None:
    with pytest.raises(ModelUnavailable, match="bytes"):
        ChatTemplate("x" * (MAX_SOURCE_BYTES + 1))
    with pytest.raises(ModelUnavailable, match="cannot use the chat template"):
        ChatTemplate("{% for %}")
