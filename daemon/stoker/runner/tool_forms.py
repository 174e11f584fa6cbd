"""How model families write tool calls, and how such text is read. Pure.

Formats: Hermes and Qwen ``<tool_call>{json}</tool_call>``; Qwen3-Coder and later the same tags
around ``<function=…>`` (``tool_tags``); DeepSeek's blocks between ``<｜tool▁calls▁begin｜>`` marks;
Llama 3 a bare JSON object with ``parameters``, or one after ``<|python_tag|>``. What does not
parse is text, never a half call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from stoker.events.prompt import ToolCall
from stoker.runner import tool_tags
from stoker.runner.literals import literal

_JSON: Final = json.JSONDecoder()
_BETWEEN: Final = re.compile(r"[\s;,]*")
_DEEPSEEK: Final = {
    name: f"<｜tool▁{name.replace(' ', '▁')}｜>"
    for name in ("calls begin", "calls end", "call begin", "call end", "sep")
}
_HEAD: Final = re.compile(rf"\s*{_DEEPSEEK['call begin']}(.*?){_DEEPSEEK['sep']}", re.DOTALL)
_LINE: Final = re.compile(r"([^\n<]*)\n?")
_FENCE_OPEN: Final = re.compile(r"\s*(?:```(?:json)?\s*)?")
_FENCE_CLOSE: Final = re.compile(rf"\s*(?:```\s*)?(?:{_DEEPSEEK['call end']}\s*|\Z)")
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


@dataclass(frozen=True, slots=True)
class Reading:
    """Calls have no id yet; none = it is no call. ``cut``: it ended within a text of a call,
    which the end mark that stood there may belong to."""

    calls: tuple[ToolCall, ...] = ()
    cut: bool = False


HERMES: Final = Form("hermes", "<tool_call>", "</tool_call>")
TAGS: Final = Form("tags", HERMES.start, HERMES.end)
DEEPSEEK: Final = Form("deepseek", _DEEPSEEK["calls begin"], _DEEPSEEK["calls end"])
DEEPSEEK_31: Final = Form("deepseek-v3.1", DEEPSEEK.start, DEEPSEEK.end)
LLAMA: Final = Form("llama", PYTHON_TAG, "", bare=True)
FORMS: Final = (HERMES, TAGS, DEEPSEEK, DEEPSEEK_31, LLAMA)
MARKS: Final = (HERMES.start, HERMES.end, PYTHON_TAG, *_DEEPSEEK.values())


def of_template(source: str, *, knows_tools: bool = True) -> Form:
    """The form that a chat template teaches; Hermes' when it teaches none.

    DeepSeek's models are trained on theirs, and their templates write earlier calls so, also
    where tools themselves are not shown (R1, V3.1).
    """
    if DEEPSEEK.start in source:
        return DEEPSEEK if "```" in source else DEEPSEEK_31
    if not knows_tools:
        return HERMES
    if HERMES.start in source:
        return TAGS if all(mark in source for mark in tool_tags.OPENINGS) else HERMES
    return LLAMA if PYTHON_TAG in source or '"parameters": ' in source else HERMES


def read(form: Form, body: str, offered: Mapping[str, object]) -> Reading:
    """The calls between ``start`` and ``end``; ``offered``: name → schema of its arguments."""
    try:
        if form.start == DEEPSEEK.start:
            return Reading(tuple(_blocks(body)))
        if not form.bare and body.lstrip().startswith(tool_tags.OPENINGS[0]):
            made, cut = tool_tags.read(body, offered)
            calls = (ToolCall("", name, _text(values)) for name, values in made)
            return Reading(tuple(calls), cut)
        return Reading(tuple(_objects(form, body, offered)))
    except json.JSONDecodeError as error:
        return Reading(cut=error.msg.startswith("Unterminated string"))
    except (ValueError, RecursionError):
        return Reading()


def write(form: Form, calls: Sequence[tuple[str, str]]) -> str:
    """GBNF of an answer that is one call; ``calls`` are (name, expression of its arguments).

    One, not several: small models that may go on calling do so until they are cut off.
    """
    parts = []
    for name, rule in calls:
        head, tail = around(form, name)
        parts.append(f"{literal(head)} {rule} {literal(tail)}")
    return " | ".join(parts)


def around(form: Form, name: str) -> tuple[str, str]:
    """What stands before and after the arguments of one call."""
    marks = _DEEPSEEK
    if form is DEEPSEEK:
        head = f"{form.start}{marks['call begin']}function{marks['sep']}{name}\n```json\n"
        return head, f"\n```{marks['call end']}{form.end}"
    if form is DEEPSEEK_31:
        head = f"{form.start}{marks['call begin']}{name}{marks['sep']}"
        return head, f"{marks['call end']}{form.end}"
    if form is LLAMA:
        return f'{{"name": "{name}", "parameters": ', "}"
    if form is TAGS:
        return f"{form.start}\n<function={name}>\n", f"</function>\n{form.end}"
    return f'{form.start}\n{{"name": "{name}", "arguments": ', f"}}\n{form.end}"


def _objects(form: Form, body: str, offered: Mapping[str, object]) -> list[ToolCall]:
    """JSON objects in a row. Raises ValueError."""
    calls = []
    at = _end(_BETWEEN, body, 0)
    while at < len(body):
        value, at = _JSON.raw_decode(body, at)
        call = _call(value)
        if form.bare and call.name not in offered:
            raise ValueError("no tool of ours")
        calls.append(call)
        at = _end(_BETWEEN, body, at)
    return calls


def _call(value: object) -> ToolCall:
    if not isinstance(value, dict):
        raise ValueError("no object")
    inner = value.get("function", value)
    if isinstance(inner, str):
        inner = {**value, "name": inner}
    if not isinstance(inner, dict):
        raise ValueError("no function")
    name = inner.get("name")
    arguments = inner.get("arguments", inner.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError as error:
            raise ValueError("arguments that are no JSON") from error
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        raise ValueError("no name, or arguments that are no table")
    return ToolCall("", name, _text(arguments))


def _blocks(body: str) -> list[ToolCall]:
    """``function<sep>NAME`` and fenced JSON, or ``NAME<sep>JSON`` of later models.

    Raises ValueError.
    """
    calls = []
    at = 0
    while body[at:].strip():
        head = _HEAD.match(body, at)
        if head is None:
            raise ValueError("no begin of a call")
        name, at = head[1].strip(), head.end()
        if name == "function":
            line = _LINE.match(body, at)
            name, at = (line[1].strip(), line.end()) if line else ("", at)
        arguments: object = {}
        at = _end(_FENCE_OPEN, body, at)
        close = _FENCE_CLOSE.match(body, at)
        if close is None:
            arguments, at = _JSON.raw_decode(body, at)
            close = _FENCE_CLOSE.match(body, at)
        if close is None:
            raise ValueError("no end of a call")
        at = close.end()
        calls.append(_call({"name": name, "arguments": arguments}))
    return calls


def _end(what: re.Pattern[str], text: str, at: int) -> int:
    """Where a pattern that may match nothing ends."""
    found = what.match(text, at)
    return found.end() if found else at


def _text(arguments: Mapping[str, object]) -> str:
    """What no JSON can say (1e999 reads as Infinity) is a ValueError, and so no call."""
    return json.dumps(arguments, ensure_ascii=False, allow_nan=False)
