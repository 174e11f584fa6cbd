"""How model families write tool calls, and how such text is read. Pure.

Formats: Hermes and Qwen ``<tool_call>{json}</tool_call>``; DeepSeek's blocks between
``<｜tool▁calls▁begin｜>`` marks; Llama 3 a bare JSON object with ``parameters``, or one after
``<|python_tag|>``. What does not parse is text, never a half call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stoker.events.prompt import ToolCall
from stoker.runner.literals import literal

_JSON: Final = json.JSONDecoder()
_BETWEEN: Final = re.compile(r"[\s;,]*")
_DEEPSEEK: Final = {
    name: f"<｜tool▁{name.replace(' ', '▁')}｜>"
    for name in ("calls begin", "calls end", "call begin", "call end", "sep")
}
_BLOCK: Final = re.compile(
    f"{_DEEPSEEK['call begin']}(.*?)(?:{_DEEPSEEK['call end']}|\\Z)", re.DOTALL
)
_FENCE: Final = re.compile(r"\A\s*(?:```(?:json)?\s*)?(.*?)(?:```\s*)?\Z", re.DOTALL)
_FENCE_OPEN: Final = "\n```json\n"
PYTHON_TAG: Final = "<|python_tag|>"


@dataclass(frozen=True, slots=True)
class Form:
    """``start``: what opens a call; ``end``: what closes it, "" = the end of the answer.

    ``bare``: an answer that begins with ``{`` is a call too, if it names one of the tools.
    """

    name: str
    start: str
    end: str
    bare: bool = False


HERMES: Final = Form("hermes", "<tool_call>", "</tool_call>")
DEEPSEEK: Final = Form("deepseek", _DEEPSEEK["calls begin"], _DEEPSEEK["calls end"])
LLAMA: Final = Form("llama", PYTHON_TAG, "", bare=True)
MARKS: Final = (HERMES.start, HERMES.end, PYTHON_TAG, *_DEEPSEEK.values())


def of_template(source: str) -> Form:
    """The form that a chat template teaches; Hermes' when it teaches none."""
    if DEEPSEEK.start in source:
        return DEEPSEEK
    if HERMES.start in source:
        return HERMES
    return LLAMA if PYTHON_TAG in source or '"parameters": ' in source else HERMES


def read(form: Form, body: str, names: Sequence[str]) -> list[ToolCall]:
    """The calls between ``start`` and ``end``; [] = it is no call. Calls have no id yet."""
    if form is DEEPSEEK:
        found = [_block(match[1]) for match in _BLOCK.finditer(body)]
        return [] if None in found else [call for call in found if call is not None]
    calls = []
    at = _BETWEEN.match(body).end()  # type: ignore[union-attr]  # it matches anything
    while at < len(body):
        try:
            value, at = _JSON.raw_decode(body, at)
        except (ValueError, RecursionError):
            return []
        call = _call(value)
        if call is None or (form.bare and call.name not in names):
            return []
        calls.append(call)
        at = _BETWEEN.match(body, at).end()  # type: ignore[union-attr]
    return calls


def write(form: Form, calls: Sequence[tuple[str, str]]) -> str:
    """GBNF of an answer that is one call; ``calls`` are (name, expression of its arguments).

    One, not several: small models that may go on calling do so until they are cut off.
    """
    if form is DEEPSEEK:
        marks = _DEEPSEEK
        head = f"{form.start}{marks['call begin']}function{marks['sep']}"
        tail = literal(f"\n```{marks['call end']}{form.end}")
        return " | ".join(
            f"{literal(head + name + _FENCE_OPEN)} {rule} {tail}" for name, rule in calls
        )
    key = "parameters" if form is LLAMA else "arguments"
    heads = [(literal(f'{{"name": "{name}", "{key}": '), rule) for name, rule in calls]
    one = " | ".join(f"{head} {rule} {literal('}')}" for head, rule in heads)
    if form is LLAMA:
        return one
    start, end = literal(f"{form.start}\n"), literal(f"\n{form.end}")
    return f"{start} ({one}) {end}"


def _call(value: object) -> ToolCall | None:
    if not isinstance(value, dict):
        return None
    inner = value.get("function", value)
    if isinstance(inner, str):
        inner = {**value, "name": inner}
    if not isinstance(inner, dict):
        return None
    name = inner.get("name")
    arguments = inner.get("arguments", inner.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return None
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        return None
    return ToolCall("", name, json.dumps(arguments, ensure_ascii=False))


def _block(text: str) -> ToolCall | None:
    """``function<sep>NAME`` and fenced JSON, or ``NAME<sep>JSON`` of later models."""
    head, mark, tail = text.partition(_DEEPSEEK["sep"])
    if not mark:
        return None
    if head.strip() == "function":
        head, _, tail = tail.partition("\n")
    found = _FENCE.match(tail)
    try:
        arguments = json.loads(found[1].strip() or "{}") if found else None
    except (ValueError, RecursionError):
        return None
    return _call({"name": head.strip(), "arguments": arguments})
