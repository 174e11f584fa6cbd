"""The lines of a job's stream: bytes from the pipe in, records out. Does no I/O.

A stream is NDJSON and ends with a ``done`` or an ``error`` line; records of a kind
that this client does not know are passed on as ``other``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from stoker_client.errors import StokerClientError, from_record

MAX_LINE_BYTES: Final = 16 << 20  # far above any record of an agent in its right mind


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a stream.

    ``kind`` is text, reasoning (both with ``text``), progress (``done`` of ``total``
    prompt tokens are read), session (what a kept conversation sent along), tool (a call
    the model wants made, in ``call``), logprobs, done, or other. ``data`` is the JSON
    object as it came.
    """

    kind: str
    text: str = ""
    done: int = 0
    total: int = 0
    data: Mapping[str, object] = field(default_factory=dict)

    def inner(self, key: str) -> Mapping[str, object]:
        """A table inside a ``done`` record (``usage``, ``timings``); {} if it has none."""
        outer = self.data.get("done")
        found = outer.get(key) if isinstance(outer, Mapping) else None
        return found if isinstance(found, Mapping) else {}

    @property
    def call(self) -> Mapping[str, object]:
        """Of a ``tool`` record: id, name and arguments (JSON text of an object)."""
        found = self.data.get("tool")
        return found if isinstance(found, Mapping) else {}

    @property
    def omitted_turns(self) -> int:
        """Of a ``session`` record: turns that did not go to the model."""
        outer = self.data.get("session")
        found = outer.get("omitted_turns") if isinstance(outer, Mapping) else 0
        return found if isinstance(found, int) else 0

    @property
    def finish_reason(self) -> str:
        outer = self.data.get("done")
        found = outer.get("finish_reason") if isinstance(outer, Mapping) else None
        return found if isinstance(found, str) else ""


def parse(line: bytes) -> Record:
    """One line as a record; an ``error`` line is raised as the error it carries."""
    try:
        data = json.loads(line.decode("utf-8", "replace"))
    except ValueError as fault:
        raise _broken("a line is not JSON") from fault
    if not isinstance(data, dict):
        raise _broken("a line is not a JSON object")
    if "error" in data:
        raise from_record(data["error"])
    if isinstance(data.get("t"), str):
        return Record("text", text=data["t"], data=data)
    if isinstance(data.get("r"), str):
        return Record("reasoning", text=data["r"], data=data)
    if isinstance(data.get("p"), dict):
        done, total = data["p"].get("done"), data["p"].get("total")
        if isinstance(done, int) and isinstance(total, int):
            return Record("progress", done=done, total=total, data=data)
    if isinstance(data.get("session"), dict):
        return Record("session", data=data)
    if isinstance(data.get("tool"), dict):
        return Record("tool", data=data)
    if isinstance(data.get("lp"), list):
        return Record("logprobs", data=data)
    return Record("done" if "done" in data else "other", data=data)


class Lines:
    """Splits chunks of any size into lines; keeps the unfinished rest."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            raise _broken("a line has no end")
        return (line for line in lines if line)


def cut_off() -> StokerClientError:
    """The pipe ended without a last line: whoever wrote it died."""
    return StokerClientError(
        "engine-failed",
        "cannot finish the answer: the stream ended in the middle",
        hint="the service died or was stopped; ask again in a moment",
    )


def _broken(reason: str) -> StokerClientError:
    return StokerClientError("engine-failed", f"cannot read the answer: {reason}")
