"""The agent's records → OpenAI's answers: whole ones and chunks of a stream. Pure.

Every chunk has id, object, created, model and choices with index, delta (or text) and
finish_reason; the first of a choice names the role; usage comes with empty choices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final

from stoker_client.records import Record

_REASONS: Final = {"stop-string": "stop", "tool-calls": "tool_calls"}

_MERGING: Final = ({"content", "logprobs"}, {"reasoning_content", "logprobs"})
_LEFT_OUT: Final = ("omitted_messages", "omitted_tokens", "shifted_tokens")

Json = dict[str, Any]


@dataclass(slots=True)
class Choice:
    """What one job has said so far."""

    index: int
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    tools: list[Json] = field(default_factory=list)
    logprobs: list[Json] = field(default_factory=list)
    finish_reason: str | None = None
    usage: Mapping[str, object] = field(default_factory=dict)
    timings: Mapping[str, object] = field(default_factory=dict)
    left_out: Json = field(default_factory=dict)  # of what did not fit the context

    def take(self, records: Iterable[Record]) -> None:
        for _ in self.deltas(records):
            pass

    def deltas(self, records: Iterable[Record]) -> Iterator[Json]:
        """OpenAI's ``delta`` objects for these records; logprobs under a key of their own.

        Neighbours of one kind become one.
        """
        waiting: Json = {}
        for record in records:
            delta = self._delta(record)
            if waiting and not any(delta.keys() | waiting.keys() <= kind for kind in _MERGING):
                yield waiting
                waiting = {}
            for key, value in delta.items():
                waiting[key] = waiting[key] + value if key in waiting else value
        if waiting:
            yield waiting

    def _delta(self, record: Record) -> Json:
        found: Json = {}
        logprobs = _logprobs(record.data.get("lp"))
        if logprobs:
            self.logprobs += logprobs
            found["logprobs"] = logprobs
        if record.kind == "text":
            self.text.append(record.text)
            found["content"] = record.text
        elif record.kind == "reasoning":
            self.reasoning.append(record.text)
            found["reasoning_content"] = record.text
        elif record.kind == "done":
            reason = record.finish_reason or "stop"
            self.finish_reason = "tool_calls" if self.tools else _REASONS.get(reason, reason)
            self.usage, self.timings = record.inner("usage"), record.inner("timings")
            done = record.data["done"]
            if isinstance(done, Mapping):
                self.left_out = {key: done[key] for key in _LEFT_OUT if done.get(key)}
        tool = record.data.get("tool")
        if isinstance(tool, Mapping):
            call = _call(tool, len(self.tools))
            self.tools.append(call)
            found["tool_calls"] = [{"index": len(self.tools) - 1, **call}]
        return found


@dataclass(frozen=True, slots=True)
class Head:
    """What all parts of one answer share. ``created``: seconds since 1970."""

    id: str
    created: int
    model: str
    chat: bool = True

    def fields(self, chunk: bool) -> Json:
        kind = "text_completion"
        if self.chat:
            kind = "chat.completion.chunk" if chunk else "chat.completion"
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def whole(head: Head, choices: Sequence[Choice], count: int, echo: Sequence[str] = ()) -> Json:
    """The answer of a request that did not stream."""
    make = _message if head.chat else _text
    found = head.fields(chunk=False)
    found["choices"] = [make(choice, _echo(echo, choice.index)) for choice in choices]
    found["usage"] = usage(choices, count)
    if choices[0].timings:
        found["timings"] = dict(choices[0].timings)
    return found | _truncation(choices[0])


class Chunks:
    """The chunks of a stream, in their order."""

    def __init__(
        self, head: Head, choices: Sequence[Choice], *, count: int = 1,
        include_usage: bool = False, echo: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._head, self._choices, self._count = head, choices, count
        self._include_usage, self._echo = include_usage, echo

    def first(self) -> Iterator[Json]:
        for choice in self._choices:
            echo = _echo(self._echo, choice.index)
            if self._head.chat:
                yield self._chunk(choice.index, {"role": "assistant", "content": ""})
            elif echo:
                yield self._chunk(choice.index, {"content": echo})

    def of(self, index: int, records: Iterable[Record]) -> Iterator[Json]:
        choice = self._choices[index]
        for delta in choice.deltas(records):
            yield self._chunk(index, delta)
        if choice.finish_reason is not None:
            yield self._chunk(index, {}, choice.finish_reason) | _truncation(choice)

    def last(self) -> Iterator[Json]:
        """After all choices have finished."""
        if self._include_usage:
            found = {**self._head.fields(chunk=True), "choices": []}
            found["usage"] = usage(self._choices, self._count)
            if self._choices[0].timings:
                found["timings"] = dict(self._choices[0].timings)
            yield found

    def _chunk(self, index: int, delta: Json, reason: str | None = None) -> Json:
        logprobs = delta.pop("logprobs", None)
        choice: Json = {"index": index, "finish_reason": reason}
        if self._head.chat:
            choice["delta"] = delta
            choice["logprobs"] = {"content": logprobs} if logprobs else None
        else:
            choice["text"] = delta.get("content", "")
            choice["logprobs"] = _legacy(logprobs) if logprobs else None
        found = {**self._head.fields(chunk=True), "choices": [choice]}
        if self._include_usage:
            found["usage"] = None
        return found


def _truncation(choice: Choice) -> Json:
    """Never silent: what was left out of the request, where something was."""
    return {"truncation": choice.left_out} if choice.left_out else {}


def usage(choices: Sequence[Choice], count: int) -> Json:
    """Tokens read (a prompt counts once, however many choices it has) and written."""
    read = sum(_number(c.usage.get("prompt_tokens")) for c in choices[::count])
    cached = sum(_number(c.usage.get("cached_tokens")) for c in choices[::count])
    written = sum(_number(c.usage.get("completion_tokens")) for c in choices)
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def _message(choice: Choice, _echo_text: str) -> Json:
    message: Json = {"role": "assistant", "content": "".join(choice.text), "refusal": None}
    if choice.reasoning:
        message["reasoning_content"] = "".join(choice.reasoning)
    if choice.tools:
        message["tool_calls"] = choice.tools
        message["content"] = message["content"] or None
    return {
        "index": choice.index,
        "message": message,
        "logprobs": {"content": choice.logprobs} if choice.logprobs else None,
        "finish_reason": choice.finish_reason,
    }


def _text(choice: Choice, echo: str) -> Json:
    return {
        "index": choice.index,
        "text": echo + "".join(choice.text),
        "logprobs": _legacy(choice.logprobs, len(echo)) if choice.logprobs else None,
        "finish_reason": choice.finish_reason,
    }


def _echo(echo: Sequence[str], index: int) -> str:
    return echo[index] if index < len(echo) else ""


def _call(tool: Mapping[str, object], number: int) -> Json:
    return {
        "id": str(tool.get("id") or f"call_{number}"),
        "type": "function",
        "function": {
            "name": str(tool.get("name", "")),
            "arguments": str(tool.get("arguments", "")),
        },
    }


def _logprobs(found: object) -> list[Json]:
    if isinstance(found, Mapping):
        found = found.get("content")
    if not isinstance(found, list):
        return []
    return [dict(item) for item in found if isinstance(item, Mapping)]


def _legacy(entries: Sequence[Mapping[str, Any]], start: int = 0) -> Json:
    """The form that /v1/completions has; offsets are within this piece of text, from ``start``."""
    tokens = [str(entry.get("token", "")) for entry in entries]
    offsets = [*accumulate(map(len, tokens[:-1]), initial=start)]
    return {
        "tokens": tokens,
        "token_logprobs": [entry.get("logprob") for entry in entries],
        "top_logprobs": [
            {str(other.get("token", "")): other.get("logprob") for other in tops}
            for entry in entries
            for tops in (entry.get("top_logprobs") or [],)
        ],
        "text_offset": offsets,
    }


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
