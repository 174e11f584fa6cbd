"""Keys of a request that say what the answer must look like: grammar, tools, likelihoods, LoRA.

Pure; raises InvalidRequest through the table. Texts are bounded and looked at as JSON here;
whether a grammar or a schema can be used is for the runner to say (grammar-invalid).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Final

from stoker.api import json_text
from stoker.events.prompt import NO_BUDGET, NO_LOGPROBS, AdapterScale, Message, Shape
from stoker.getters import Table

ROLES: Final = ("system", "user", "assistant", "tool")
MAX_SCHEMA_BYTES: Final = 64 << 10
MAX_TOOLS_BYTES: Final = 256 << 10
MAX_TOOLS: Final = 128
MAX_CALLS: Final = 64
MAX_DEPTH: Final = 64
MAX_VALUES: Final = 10_000
MAX_ADAPTERS: Final = 8
MAX_LOGPROBS: Final = 20
MAX_REASONING_TOKENS: Final = 1 << 20
_SCALES: Final = (-16.0, 16.0)
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MESSAGE_KEYS: Final = ("role", "content", "tool_calls", "tool_call_id", "name")
_CHOICES: Final = ("auto", "none", "required")


def parse_shape(table: Table) -> Shape:
    """The keys of ``Shape``; those that are absent leave the answer free."""
    schema, grammar = _schema(table), table.text("grammar", "", max_bytes=MAX_SCHEMA_BYTES)
    if schema and grammar:
        table.refuse("grammar", "give response_format or grammar, not both")
    tools, names = _tools(table)
    choice = table.text("tool_choice", "auto", max_bytes=64)
    if choice not in (*_CHOICES, *names):
        table.refuse("tool_choice", f"{choice!r} is neither {', '.join(_CHOICES)} nor a tool")
    if choice != "auto" and not tools:
        table.refuse("tool_choice", "there are no tools")
    if choice not in ("auto", "none") and (schema or grammar):
        table.refuse("tool_choice", "an answer that must be a call cannot follow a grammar too")
    return Shape(
        schema=schema,
        grammar=_sound(table, "grammar", grammar),
        tools=tools,
        tool_choice=choice,
        logprobs=_whole(table, "logprobs", NO_LOGPROBS, MAX_LOGPROBS),
        reasoning_tokens=_whole(table, "reasoning_tokens", NO_BUDGET, MAX_REASONING_TOKENS),
        adapters=_adapters(table),
    )


def parse_message(item: Table, limit: int) -> Message:
    """One of ``messages``. An assistant's calls may stand without content."""
    role = item.choice("role", ROLES)
    calls = _calls(item, role, limit)
    content = item.text("content", "" if calls else None, max_bytes=limit)
    for key in item.keys():  # noqa: SIM118  (Table is no mapping)
        if key not in _MESSAGE_KEYS:
            item.refuse(key, "unknown key")
    return Message(
        role,
        _sound(item, "content", content),
        tool_calls=calls,
        tool_call_id=_sound(item, "tool_call_id", item.text("tool_call_id", "", max_bytes=256)),
        name=_sound(item, "name", item.text("name", "", max_bytes=64)),
    )


def _schema(table: Table) -> str:
    if not table.has("response_format"):
        return ""
    form = _json(table, "response_format", MAX_SCHEMA_BYTES)
    if not isinstance(form, dict):
        table.refuse("response_format", "not a table")
    kind = form.get("type")
    if kind == "json_object":
        return '{"type":"object"}'
    if kind not in ("text", "json_schema"):
        table.refuse("response_format", "type is not text, json_object or json_schema")
    if kind == "text":
        return ""
    inner = form.get("json_schema")
    schema = inner.get("schema", {}) if isinstance(inner, dict) else None
    if not isinstance(schema, dict | bool):
        table.refuse("response_format", "json_schema.schema is not a schema")
    return json.dumps(schema, ensure_ascii=False)


def _tools(table: Table) -> tuple[str, tuple[str, ...]]:
    if not table.has("tools"):
        return "", ()
    tools = _json(table, "tools", MAX_TOOLS_BYTES)
    if not isinstance(tools, list) or len(tools) > MAX_TOOLS:
        table.refuse("tools", f"not a list of at most {MAX_TOOLS} tools")
    names: list[str] = []
    for index, tool in enumerate(tools):
        inner = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(inner, dict) or tool.get("type", "function") != "function":
            table.refuse(f"tools[{index}]", "not a function: type and function are expected")
        name = inner.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in (*names, *_CHOICES):
            table.refuse(f"tools[{index}].function.name", "not a name, or there twice")
        if not isinstance(inner.get("parameters", {}), dict):
            table.refuse(f"tools[{index}].function.parameters", "not a schema")
        names.append(name)
    return (json.dumps(tools, ensure_ascii=False) if tools else ""), tuple(names)


def _calls(item: Table, role: str, limit: int) -> str:
    if not item.has("tool_calls"):
        return ""
    calls = _json(item, "tool_calls", limit)
    if role != "assistant" or not isinstance(calls, list) or len(calls) > MAX_CALLS:
        item.refuse("tool_calls", f"not an assistant's list of at most {MAX_CALLS} calls")
    for index, call in enumerate(calls):
        inner = call.get("function") if isinstance(call, dict) else None
        if not isinstance(inner, dict) or not isinstance(inner.get("name"), str):
            item.refuse(f"tool_calls[{index}]", "not a call of a named function")
        if not isinstance(inner.get("arguments", ""), str | dict):
            item.refuse(f"tool_calls[{index}].function.arguments", "not JSON text")
    return json.dumps(calls, ensure_ascii=False) if calls else ""


def _adapters(table: Table) -> tuple[AdapterScale, ...]:
    scales = table.table("lora")
    names = scales.keys()
    if len(names) > MAX_ADAPTERS:
        table.refuse("lora", f"more than {MAX_ADAPTERS} adapters")
    low, high = _SCALES
    found = [AdapterScale(name, scales.number(name, low=low, high=high)) for name in names]
    return tuple(sorted(found, key=lambda item: item.name))


def _json(table: Table, key: str, limit: int) -> object:
    """JSON text, or values that came as such; bounded in bytes, depth and number."""
    raw = table.raw(key)
    if isinstance(raw, str):
        text = _sound(table, key, table.text(key, max_bytes=limit))
        try:
            value = json_text.read(text)
        except ValueError as error:
            table.refuse(key, f"no JSON: {error}"[:200])
    else:
        value = raw
    for values, (item, depth) in enumerate(_inside(value)):
        if depth > MAX_DEPTH or values > MAX_VALUES:
            table.refuse(key, f"more than {MAX_VALUES} values, or deeper than {MAX_DEPTH}")
        if isinstance(item, float) and not math.isfinite(item):
            table.refuse(key, f"{item} is no number of JSON")
        if isinstance(item, str) and _halves(item):  # JSON's \u escapes can hide one
            table.refuse(key, "has a lone surrogate, which is no text")
    if not isinstance(raw, str) and len(json.dumps(value).encode()) > limit:
        table.refuse(key, f"longer than {limit} bytes")
    return value


def _inside(value: object) -> Iterator[tuple[object, int]]:
    """Each value inside, keys too, with its depth; no recursion, so no depth hurts."""
    todo = [(value, 1)]
    while todo:
        item, depth = todo.pop()
        yield item, depth
        if depth > MAX_DEPTH:
            return
        if isinstance(item, Mapping):
            todo += [(part, depth + 1) for pair in item.items() for part in pair]
        elif isinstance(item, list | tuple):
            todo += [(part, depth + 1) for part in item]


def _whole(table: Table, key: str, absent: int, high: int) -> int:
    return table.whole(key, low=0, high=high) if table.has(key) else absent


def _sound(table: Table, key: str, text: str) -> str:
    """No NUL, no lone surrogate: neither is text that tokens can be made of."""
    if "\0" in text or _halves(text):
        table.refuse(key, "has a NUL character or a lone surrogate")
    return text


def _halves(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)
