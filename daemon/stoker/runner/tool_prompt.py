"""Messages and tools as chat templates want them; words for templates that know no tools. Pure.

Templates of Hugging Face take OpenAI's list of tools. Arguments of earlier calls are tables
for all but DeepSeek's, which joins them as text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from stoker.errors import InvalidRequest
from stoker.events.prompt import Message
from stoker.runner.tool_forms import DEEPSEEK, HERMES, Form

_EXPLAIN: Final = """\
You can call these functions. Each line is one function as JSON:
{tools}
To call one, answer with its name and its arguments as JSON between tags, and nothing else:
{start}
{{"name": "NAME", "arguments": {{"KEY": "VALUE"}}}}
{end}
You get the result between <tool_response> tags. When no function helps, answer in plain words."""


def read_tools(text: str) -> list[Mapping[str, object]]:
    """The list of tools of a request; [] for "". Raises InvalidRequest."""
    if not text:
        return []
    try:
        tools = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _wrong(f"no JSON: {error}") from error
    if not isinstance(tools, list) or not all(map(_named, tools)):
        raise _wrong("not a list of functions with names")
    return tools


def functions(tools: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """Name → JSON Schema of the arguments."""
    found: dict[str, object] = {}
    for tool in tools:
        inner = tool["function"]
        assert isinstance(inner, dict)
        found[inner["name"]] = inner.get("parameters") or {"type": "object"}
    return found


def for_template(messages: Sequence[Message], form: Form) -> list[dict[str, object]]:
    """Messages for a template that knows about tools (or where none are in play)."""
    return [_plain(message, form) for message in messages]


def spelled_out(messages: Sequence[Message], tools: Sequence[object]) -> list[Message]:
    """Messages for a template that knows none: tools in the system message, calls as text."""
    out = [_as_text(message) for message in messages]
    if not tools:
        return out
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    told = _EXPLAIN.format(tools=lines, start=HERMES.start, end=HERMES.end)
    if out and out[0].role == "system":
        return [Message("system", f"{out[0].content}\n\n{told}"), *out[1:]]
    return [Message("system", told), *out]


def _plain(message: Message, form: Form) -> dict[str, object]:
    found: dict[str, object] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        found["tool_calls"] = [_call(call, form) for call in _calls(message)]
        if form is DEEPSEEK and not message.content:
            found["content"] = None  # its template tells calls from text by this
    if message.tool_call_id:
        found["tool_call_id"] = message.tool_call_id
    if message.name:
        found["name"] = message.name
    return found


def _call(call: Mapping[str, object], form: Form) -> dict[str, object]:
    inner = call["function"]
    assert isinstance(inner, dict)
    arguments = inner.get("arguments", {})
    if form is DEEPSEEK:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        return {**call, "type": "function", "function": {**inner, "arguments": text}}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            arguments = {"text": arguments}  # what a model once wrote must not break its chat
    return {**call, "type": "function", "function": {**inner, "arguments": arguments}}


def _as_text(message: Message) -> Message:
    if message.role == "tool":
        return Message("user", f"<tool_response>\n{message.content}\n</tool_response>")
    if not message.tool_calls:
        return message
    parts = [message.content] if message.content else []
    for call in _calls(message):
        inner = _call(call, HERMES)["function"]
        parts.append(f"{HERMES.start}\n{json.dumps(inner, ensure_ascii=False)}\n{HERMES.end}")
    return Message(message.role, "\n".join(parts))


def _calls(message: Message) -> list[Mapping[str, object]]:
    try:
        calls = json.loads(message.tool_calls)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"cannot read tool_calls: {error}") from error
    if not isinstance(calls, list) or not all(map(_named, calls)):
        raise InvalidRequest("cannot read tool_calls: not a list of calls of named functions")
    return calls


def _named(tool: object) -> bool:
    inner = tool.get("function") if isinstance(tool, dict) else None
    return isinstance(inner, dict) and isinstance(inner.get("name"), str)


def _wrong(reason: str) -> InvalidRequest:
    return InvalidRequest(f"cannot use tools: {reason}"[:300], details={"path": "tools"})
