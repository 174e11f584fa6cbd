"""Messages and tools as chat templates want them; words for templates that know no tools. Pure.

Templates of Hugging Face take OpenAI's list of tools. Arguments of earlier calls are tables
that are JSON where a template joins them to text, as DeepSeek's do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from stoker.errors import InvalidRequest
from stoker.events.prompt import Message
from stoker.runner import tool_forms
from stoker.runner.tool_forms import DEEPSEEK, HERMES, Form

_EXPLAIN: Final = """\
You can call these functions. Each line is one function as JSON:
{tools}
To call one, answer with its name and its arguments as JSON {how}, and nothing else:
{example}
{result}When no function helps, answer in plain words."""
_HOW: Final = ("between tags", "between marks")
_RESULT: Final = "You get the result between <tool_response> tags. "


class _Arguments(dict[str, object]):
    """A table for templates that look into it, its JSON for those that join it to text."""

    __slots__ = ("_text",)

    def __init__(self, values: Mapping[str, object], text: str) -> None:
        super().__init__(values)
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __add__(self, other: str) -> str:
        return self._text + other

    def __radd__(self, other: str) -> str:
        return other + self._text


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


def told(messages: Sequence[Message], tools: Sequence[object], form: Form) -> list[Message]:
    """Messages for a template that shows no tools: they are told in the system message."""
    out = list(messages)
    if not tools:
        return out
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    bare = form is HERMES
    told = _EXPLAIN.format(
        tools=lines,
        how=_HOW[not bare],
        example='{"KEY": "VALUE"}'.join(tool_forms.around(form, "NAME")),
        result=_RESULT if bare else "",
    )
    if out and out[0].role == "system":
        return [Message("system", f"{out[0].content}\n\n{told}"), *out[1:]]
    return [Message("system", told), *out]


def spelled_out(messages: Sequence[Message], tools: Sequence[object], form: Form) -> list[Message]:
    """As ``told``, for a template that knows no calls either: they are text too."""
    return told([_as_text(message) for message in messages], tools, form)


def folded(messages: Sequence[Message]) -> list[Message]:
    """Messages for a template that has no system role: its words begin the user's next turn.

    Turns of the user that follow each other become one: such templates want them to alternate.
    """
    out: list[Message] = []
    waiting: list[str] = []
    for message in messages:
        if message.role == "system":
            waiting.append(message.content)
        elif message.role != "user":
            out.append(message)
        else:
            parts = [*waiting, message.content]
            waiting = []
            if out and out[-1].role == "user":
                parts.insert(0, out.pop().content)
            out.append(Message("user", "\n\n".join(parts)))
    return [*out, Message("user", "\n\n".join(waiting))] if waiting else out


def _plain(message: Message, form: Form) -> dict[str, object]:
    found: dict[str, object] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        found["tool_calls"] = [_call(call) for call in _calls(message)]
        if form.start == DEEPSEEK.start and not message.content:
            found["content"] = None  # its template tells calls from text by this
    if message.tool_call_id:
        found["tool_call_id"] = message.tool_call_id
    if message.name:
        found["name"] = message.name
    return found


def _call(call: Mapping[str, object]) -> dict[str, object]:
    inner = call["function"]
    assert isinstance(inner, dict)
    arguments = inner.get("arguments", {})
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    try:
        arguments = json.loads(text or "{}")
    except (ValueError, RecursionError):
        arguments = {"text": text}  # what a model once wrote must not break its chat
    if isinstance(arguments, dict):
        arguments = _Arguments(arguments, text)
    return {**call, "type": "function", "function": {**inner, "arguments": arguments}}


def _as_text(message: Message) -> Message:
    if message.role == "tool":
        return Message("user", f"<tool_response>\n{message.content}\n</tool_response>")
    if not message.tool_calls:
        return message
    parts = [message.content] if message.content else []
    for call in _calls(message):
        inner = _call(call)["function"]
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
