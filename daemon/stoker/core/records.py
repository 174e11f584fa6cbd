"""The lines of a job's stream: what a caller reads from the pipe.

Format ``ndjson``: one JSON object a line, the last one always ``done`` or ``error``.
Format ``text``: the answer's bare UTF-8, nothing else (reasoning and errors are left
to Job1.GetResult).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from stoker.errors import StokerError
from stoker.events.prompt import ToolCall
from stoker.events.runner import Delta


def of_delta(delta: Delta, form: str) -> bytes:
    """Bytes for one step of one job; b"" if this format shows nothing of it."""
    if form == "text":
        return delta.t.encode("utf-8", "replace")
    out = b""
    if delta.p is not None:
        out += line({"p": {"done": delta.p[0], "total": delta.p[1]}})
    if delta.r:
        out += line({"r": delta.r})
    if delta.t:
        out += line({"t": delta.t})
    if delta.lp is not None:
        out += line({"lp": delta.lp.get("content", [])})
    for call in delta.tools:
        out += line({"tool": {"id": call.id, "name": call.name, "arguments": call.arguments}})
    return out


def logprobs(delta: Delta) -> str:
    """The likelihoods of one step as JSON, without the brackets of the list."""
    found = delta.lp.get("content") if delta.lp is not None else None
    items = found if isinstance(found, list) else []
    return ",".join(json.dumps(item, ensure_ascii=True) for item in items)


def tool_calls(calls: Iterable[ToolCall]) -> str:
    """A JSON list in OpenAI's form, as a later request may give it back."""
    return json.dumps(
        [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in calls
        ],
        ensure_ascii=True,
    )


def of_done(done: Mapping[str, object], form: str) -> bytes:
    return b"" if form == "text" else line({"done": dict(done)})


def of_error(error: StokerError, form: str) -> bytes:
    return b"" if form == "text" else line({"error": error.record()})


def line(record: Mapping[str, object]) -> bytes:
    """One NDJSON line; newlines in text are escaped by JSON itself."""
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"
