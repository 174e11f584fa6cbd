"""A caller's words and options as the ``a{sv}`` pairs that CreateJob takes.

It checks only what D-Bus itself cannot carry; the agent judges the values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict

from stoker_client.errors import StokerClientError

Messages = Sequence[Mapping[str, str]]


class Options(TypedDict, total=False):
    """How to answer. What is left out is the agent's default."""

    system: str
    model: str
    raw: bool  # no chat template
    reasoning: bool  # split <think>…</think> from the answer
    max_tokens: int
    seed: int
    top_k: int
    temperature: float
    top_p: float
    min_p: float
    repeat_penalty: float
    frequency_penalty: float
    presence_penalty: float
    response_format: Mapping[str, Any] | str  # {"type": "json_schema", "json_schema": {…}}
    grammar: str  # GBNF
    tools: Sequence[Mapping[str, Any]] | str  # OpenAI's form
    tool_choice: str  # auto, none, required or a function's name
    logprobs: int  # alternatives for each token, 0..20
    reasoning_tokens: int  # then the answer begins; 0 = no reasoning
    lora: Mapping[str, float]  # adapter and scale
    stop: Sequence[str]
    overflow: str  # error, truncate-oldest or shift: when the context is too small
    deadline_s: float
    job_class: str  # interactive, normal (the agent's default) or background


class Settings(TypedDict, total=False):
    """What a kept conversation may say of itself."""

    title: str
    system: str
    model: str
    window_turns: int  # earlier turns that go to the model
    window_tokens: int  # tokens they may have; 0 = what the model takes
    summary: str  # on | off: of what the window leaves out; "" = as the agent is configured
    ttl_s: int  # unused for so long = deleted; 0 = as the agent is configured


_SETTINGS: Final = {
    "title": "s",
    "system": "s",
    "model": "s",
    "window_turns": "x",
    "window_tokens": "x",
    "summary": "s",
    "ttl_s": "x",
}
_SIGNATURES: Final = {
    "system": "s",
    "model": "s",
    "raw": "b",
    "reasoning": "b",
    "max_tokens": "x",
    "seed": "x",
    "top_k": "x",
    "temperature": "d",
    "top_p": "d",
    "min_p": "d",
    "repeat_penalty": "d",
    "frequency_penalty": "d",
    "presence_penalty": "d",
    "response_format": "s",
    "grammar": "s",
    "tools": "s",
    "tool_choice": "s",
    "logprobs": "x",
    "reasoning_tokens": "x",
    "lora": "a{sd}",
    "stop": "as",
    "overflow": "s",
}

_AS_JSON: Final = ("response_format", "tools")  # unless they are text already

Pairs = dict[str, tuple[str, Any]]
"""key → (D-Bus signature, value)."""


def build(question: str | Messages, options: Options) -> tuple[Pairs, Pairs]:
    """(request, options) of one CreateJob."""
    request: Pairs = {}
    if isinstance(question, str):
        request["prompt"] = ("s", text(question, "the prompt"))
    else:
        turns = [{key: text(value, key) for key, value in turn.items()} for turn in question]
        request["messages"] = ("aa{ss}", turns)
    delivery: Pairs = {"format": ("s", "ndjson")}
    for key, value in options.items():
        if key == "deadline_s":
            delivery["deadline_ms"] = ("x", max(1, round(float(str(value)) * 1000)))
        elif key == "job_class":
            delivery["class"] = ("s", text(str(value), key))
        elif key in _SIGNATURES:
            request[key] = (_SIGNATURES[key], _checked(key, value))
        else:
            known = ", ".join([*_SIGNATURES, "deadline_s", "job_class"])
            raise TypeError(f"unknown option {key!r}; there are: {known}")
    return request, delivery


def build_settings(settings: Settings) -> Pairs:
    """``settings`` of CreateSession and Configure."""
    pairs: Pairs = {}
    for key, value in settings.items():
        if key not in _SETTINGS:
            raise TypeError(f"unknown setting {key!r}; there are: {', '.join(_SETTINGS)}")
        pairs[key] = (_SETTINGS[key], _checked(key, value))
    return pairs


def text(value: str, what: str) -> str:
    """The text itself, if D-Bus can carry it (UTF-8 without NUL)."""
    if "\0" in value:
        raise _unfit(what, "it contains a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError as fault:
        raise _unfit(what, "it is not valid UTF-8") from fault
    return value


def _checked(key: str, value: object) -> object:
    if isinstance(value, str) and key != "stop":
        return text(value, key)
    if key in _AS_JSON:
        return text(json.dumps(value, ensure_ascii=False), key)
    if key == "lora" and isinstance(value, Mapping):
        return {text(str(name), key): float(scale) for name, scale in value.items()}
    if key == "stop":
        parts = [value] if isinstance(value, str) else value
        return [text(str(part), key) for part in parts]  # type: ignore[attr-defined]
    return value


def _unfit(what: str, reason: str) -> StokerClientError:
    return StokerClientError("invalid-request", f"cannot send {what}: {reason}")
