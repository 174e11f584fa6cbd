"""OpenAI's request bodies → what CreateJob and Embed take. Pure; raises Problem.

Types are checked here, because D-Bus is typed; what values may be is the agent's to say.
Fields that nobody knows are ignored, as every server of this API does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from stoker.gateway.fields import Fields, refusal, sound
from stoker_client.requests import Pairs

MAX_MESSAGES: Final = 1024
MAX_CHOICES: Final = 16
MAX_PROMPTS: Final = 16
MAX_INPUTS: Final = 2048  # as OpenAI's
PORTION_TEXTS: Final = 64
PORTION_BYTES: Final = 8000
MAX_STOPS: Final = 16
MAX_SCALE: Final = 16.0
_ROLES: Final = {  # as clients of all ages say it → as chat templates have it
    "system": "system", "developer": "system", "user": "user", "assistant": "assistant",
    "tool": "tool", "function": "tool",
}  # fmt: skip
_PARTS: Final = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
FREE: Final = ("i", -1)  # no budget for thoughts, which the agent has no number for
_TIERS: Final = {"flex": "background", "priority": "interactive", "default": "normal"}
# How Open WebUI's requests for titles, tags and the like begin: nobody waits for those.
_ERRAND: Final = "### Task:\n"

Read = Callable[[Fields, str], tuple[str, Any]]


def _number(low: float, high: float) -> Read:
    return lambda fields, key: ("d", fields.number(key, low, high))


def _whole(low: int, high: int) -> Read:
    return lambda fields, key: ("x", fields.whole(key, low, high))


_SETTINGS: Final[Mapping[str, Read]] = {
    "temperature": _number(0.0, 5.0),
    "top_p": _number(0.0, 1.0),
    "min_p": _number(0.0, 1.0),
    "repeat_penalty": _number(0.1, 10.0),
    "frequency_penalty": _number(-2.0, 2.0),
    "presence_penalty": _number(-2.0, 2.0),
    "top_k": _whole(0, 1_000_000),
    # -1 would mean "another one each time" to the agent; to a caller it is a number.
    "seed": lambda fields, key: ("x", (fields.whole(key, -(1 << 63), (1 << 63) - 1) or 0) % 2**32),
    "grammar": lambda fields, key: ("s", fields.text(key)),
    "reasoning_tokens": lambda fields, key: ("i", fields.whole(key, -1, 1 << 20)),
    "overflow": lambda fields, key: ("s", fields.text(key)),
    "lora": lambda fields, key: ("a{sd}", _adapters(fields, key)),
    "stop": lambda fields, key: ("as", _stops(fields, key)),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """One HTTP request: a job for each of ``requests``, whose answers are its choices."""

    requests: tuple[Pairs, ...]
    options: Pairs
    model: str = ""
    stream: bool = False
    include_usage: bool = False
    count: int = 1  # choices a prompt
    echo: tuple[str, ...] = ()  # the prompt that a choice begins with


@dataclass(frozen=True, slots=True)
class Embedding:
    texts: tuple[str, ...]
    model: str = ""
    base64: bool = False
    dimensions: int | None = None

    def portions(self) -> Iterator[tuple[str, ...]]:
        """As many texts as one call takes: so many, and so many tokens, of which a byte is at
        most one.
        """
        taken: list[str] = []
        size = 0
        for text in self.texts:
            more = len(text.encode())
            if taken and (len(taken) == PORTION_TEXTS or size + more > PORTION_BYTES):
                yield tuple(taken)
                taken, size = [], 0
            taken.append(text)
            size += more
        yield tuple(taken)


def chat(body: object) -> Asked:
    """POST /v1/chat/completions."""
    fields = Fields(body)
    pairs = _settings(fields)
    pairs["messages"] = ("aa{ss}", _messages(fields))
    _shape(fields, pairs)
    alternatives = fields.whole("top_logprobs", 0, 20) or 0
    if fields.flag("logprobs"):
        pairs["logprobs"] = ("i", alternatives)
    asked = _delivery(fields, (pairs,))
    errand = len(pairs["messages"][1]) == 1 and _text_of(pairs).startswith(_ERRAND)
    if errand and "class" not in asked.options:
        asked = replace(asked, options={**asked.options, "class": ("s", "background")})
    return asked


def completion(body: object) -> Asked:
    """POST /v1/completions: text goes to the model as it is, without its chat template."""
    fields = Fields(body)
    if fields.has("suffix") and fields.text("suffix"):
        raise fields.refuse("suffix", "is not supported")
    base = _settings(fields)
    base["raw"] = ("b", True)
    if fields.has("logprobs"):
        base["logprobs"] = ("i", fields.whole("logprobs", 0, 20))
    prompts = _texts(fields, "prompt", MAX_PROMPTS)
    asked = _delivery(fields, tuple({**base, "prompt": ("s", prompt)} for prompt in prompts))
    return replace(
        asked,
        echo=tuple(pairs["prompt"][1] for pairs in asked.requests) if fields.flag("echo") else (),
    )


def embedding(body: object) -> Embedding:
    """POST /v1/embeddings."""
    fields = Fields(body)
    form = fields.text("encoding_format", "float")
    if form not in ("float", "base64"):
        raise fields.refuse("encoding_format", 'must be "float" or "base64"')
    texts = tuple(_texts(fields, "input", MAX_INPUTS))
    if "" in texts:
        raise refusal(f"input[{texts.index('')}]", "is empty")
    return Embedding(
        texts,
        fields.text("model"),
        form == "base64",
        fields.whole("dimensions", 1, 1 << 20),
    )


def _settings(fields: Fields) -> Pairs:
    pairs: Pairs = dict(fields.each(_SETTINGS))
    if pairs.get("reasoning_tokens") == FREE:
        del pairs["reasoning_tokens"]
    model = fields.text("model")
    if model:
        pairs["model"] = ("s", model)
    for key in ("max_tokens", "max_completion_tokens"):  # the newer name wins
        if fields.has(key):
            pairs["max_tokens"] = ("x", fields.whole(key, 1, (1 << 31) - 1))
    return pairs


def _delivery(fields: Fields, requests: tuple[Pairs, ...]) -> Asked:
    options: Pairs = {"format": ("s", "ndjson")}
    tier = _TIERS.get(fields.text("service_tier"))
    if tier:
        options["class"] = ("s", tier)
    count = fields.whole("n", 1, MAX_CHOICES) or 1
    if count * len(requests) > MAX_CHOICES:
        raise fields.refuse("n", f"asks for more than {MAX_CHOICES} answers")
    streaming = fields.inner("stream_options")
    return Asked(
        tuple(_nth(pairs, index) for pairs in requests for index in range(count)),
        options,
        fields.text("model"),
        fields.flag("stream"),
        streaming is not None and streaming.flag("include_usage"),
        count,
    )


def _nth(pairs: Pairs, index: int) -> Pairs:
    """The same seed would give the same answer n times."""
    if index == 0 or "seed" not in pairs:
        return pairs
    return {**pairs, "seed": ("x", (pairs["seed"][1] + index) % 2**32)}


def _messages(fields: Fields) -> list[dict[str, str]]:
    found = [_message(Fields(item, path)) for path, item in fields.items("messages", MAX_MESSAGES)]
    if not found:
        raise fields.refuse("messages", "is empty")
    return found


def _message(fields: Fields) -> dict[str, str]:
    role = _ROLES.get(fields.text("role"))
    if role is None:
        raise fields.refuse("role", f"must be one of {', '.join(_ROLES)}")
    message = {"role": role, "content": _content(fields)}
    if _objects(fields, "tool_calls"):
        message["tool_calls"] = as_json(fields, "tool_calls")
    for key in ("tool_call_id", "name"):
        value = fields.text(key)
        if value and message["role"] == "tool":  # other roles' names mean nothing to templates
            message[key] = value
    return message


def _content(fields: Fields) -> str:
    """A string, or the text of its parts; images and sound have no reader here."""
    if not isinstance(fields.raw("content"), list):
        return fields.text("content")
    texts: list[str] = []
    for path, item in fields.items("content", MAX_MESSAGES):
        part = Fields(item, path)
        kind = part.text("type")
        if kind not in _PARTS:
            raise part.refuse("type", f"{kind!r} is not supported: only text is")
        texts.append(part.text(_PARTS[kind]))
    return "".join(texts)


def _shape(fields: Fields, pairs: Pairs) -> None:
    """What the answer must look like; the agent reads the JSON itself."""
    form = fields.inner("response_format")
    if form is not None:
        kind = form.text("type")
        if kind not in ("text", "json_object", "json_schema"):
            raise form.refuse("type", 'must be "text", "json_object" or "json_schema"')
        if kind != "text":
            pairs["response_format"] = ("s", as_json(fields, "response_format"))
    if _objects(fields, "tools"):
        pairs["tools"] = ("s", as_json(fields, "tools"))
    choice = fields.raw("tool_choice")
    if isinstance(choice, Mapping):
        function = Fields(choice, "tool_choice").inner("function")
        name = function.text("name") if function is not None else ""
        if not name:
            raise refusal("tool_choice.function.name", "is missing")
        choice = name
    elif choice is not None and not isinstance(choice, str):
        raise fields.refuse("tool_choice", "must be a string or an object")
    # Both mean nothing without tools; the agent refuses what asks for a call.
    if choice is not None and ("tools" in pairs or choice not in ("auto", "none", "")):
        pairs["tool_choice"] = ("s", sound(choice, "tool_choice"))


def _objects(fields: Fields, key: str) -> int:
    """How many there are; refuses what is no list of JSON objects."""
    if not fields.has(key):
        return 0
    return len([Fields(item, path) for path, item in fields.items(key, MAX_MESSAGES)])


def as_json(fields: Fields, key: str) -> str:
    text = json.dumps(fields.raw(key), ensure_ascii=False, separators=(",", ":"))
    return sound(text, fields.path(key))


def _texts(fields: Fields, key: str, most: int) -> list[str]:
    """A string or a list of them. Token ids would be of another model's vocabulary."""
    value = fields.raw(key)
    if isinstance(value, str):
        return [fields.text(key)]
    if not isinstance(value, list):
        raise fields.refuse(key, "must be a string or a list of strings")
    found: list[str] = []
    for path, item in fields.items(key, most):
        if isinstance(item, int | list):
            raise refusal(path, "must be a string: token ids of another vocabulary mean nothing")
        if not isinstance(item, str):
            raise refusal(path, "must be a string")
        found.append(sound(item, path))
    if not found:
        raise fields.refuse(key, "is empty")
    return found


def _stops(fields: Fields, key: str) -> list[str]:
    if fields.raw(key) == []:
        return []
    return _texts(fields, key, MAX_STOPS)


def _adapters(fields: Fields, key: str) -> dict[str, float]:
    inner = fields.inner(key)
    assert inner is not None
    found: dict[str, float] = {}
    for name in fields.raw(key):
        found[sound(name, inner.path(name))] = inner.number(name, -MAX_SCALE, MAX_SCALE) or 0.0
    return found


def _text_of(pairs: Pairs) -> str:
    text: str = pairs["messages"][1][0]["content"]
    return text
