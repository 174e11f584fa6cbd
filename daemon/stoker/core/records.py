"""The lines of a job's stream: what a caller reads from the pipe.

Format ``ndjson``: one JSON object a line, the last one always ``done`` or ``error``.
Format ``text``: the answer's bare UTF-8, nothing else (reasoning and errors are left
to Job1.GetResult).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from stoker.errors import StokerError
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
    return out


def of_done(done: Mapping[str, object], form: str) -> bytes:
    return b"" if form == "text" else line({"done": dict(done)})


def of_error(error: StokerError, form: str) -> bytes:
    return b"" if form == "text" else line({"error": error.record()})


def line(record: Mapping[str, object]) -> bytes:
    """One NDJSON line; newlines in text are escaped by JSON itself."""
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"
