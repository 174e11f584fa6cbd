"""a{sv} → Ask and Delivery: what a caller may say, its ranges and its limits.

Pure: takes the unpacked dictionaries, returns frozen values or raises InvalidRequest
with ``details.path``. Absent keys read as configuration's defaults; unknown ones are
refused. The size of the whole call was checked before it was unpacked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from stoker.api.shape_requests import parse_message, parse_shape
from stoker.config.limits import SECTIONS
from stoker.config.schema import Config
from stoker.errors import InvalidRequest, StokerError
from stoker.events.inference import Ask, Delivery, JobClass
from stoker.events.prompt import OVERFLOW, Message, Sampling
from stoker.getters import Table
from stoker.units import Seconds

FORMATS: Final = ("ndjson", "text")
MAX_MESSAGES: Final = 1024
MAX_STOPS: Final = 16
MAX_TEXTS: Final = 64
MAX_STOP_BYTES: Final = 256
MAX_MODEL_BYTES: Final = 256
MAX_DEADLINE_MS: Final = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Limits:
    """The part of configuration that a request is read against."""

    max_request_bytes: int = 1 << 20
    max_tokens_limit: int = 8192
    sampling: Sampling = field(default_factory=Sampling)
    max_request_fd_bytes: int = 4 << 20

    @classmethod
    def of(cls, config: Config) -> Limits:
        inference = config.inference
        return cls(
            inference.max_request_bytes,
            inference.max_tokens_limit,
            config.sampling,
            inference.max_request_fd_bytes,
        )

    def of_files(self) -> Limits:
        """The same for a request that came as a file, which may be larger."""
        return replace(self, max_request_bytes=self.max_request_fd_bytes)


def parse_ask(request: Mapping[str, object], limits: Limits) -> Ask:
    """``request`` of CreateJob. Raises InvalidRequest."""
    table = Table(request, _fail, "request")
    prompt, messages = _question(table, limits)
    raw = table.flag("raw", False)
    if raw and messages:
        table.refuse("raw", "goes with prompt, not with messages or system")
    ask = Ask(
        prompt=prompt,
        messages=messages,
        raw=raw,
        model=_text(table, "model", MAX_MODEL_BYTES, default=""),
        max_tokens=_whole(table, "max_tokens", 0, 1, limits.max_tokens_limit),
        stop=_stops(table),
        sampling=_sampling(table, limits.sampling),
        reasoning=table.flag("reasoning", True),
        shape=parse_shape(table),
        overflow=table.choice("overflow", ("", *OVERFLOW), ""),
    )
    _fits_together(ask, table)
    table.finish()
    return ask


def _fits_together(ask: Ask, table: Table) -> None:
    """What no single key can tell."""
    if ask.shape.tools and ask.raw:
        table.refuse("tools", "they go through the chat template, which raw leaves out")
    if ask.shape.reasoning_tokens >= 0 and not ask.reasoning:
        table.refuse("reasoning_tokens", "counts what reasoning = false does not tell apart")


def parse_texts(texts: Sequence[str], limits: Limits) -> tuple[str, ...]:
    """The texts of Embed: 1..64, together as large as a request may be."""
    table = Table({"texts": list(texts)}, _fail)
    found = table.texts("texts", max_items=MAX_TEXTS)
    size = 0
    for index, text in enumerate(found):
        size += len(_sound(table, f"texts[{index}]", text).encode())
        if not text or size > limits.max_request_bytes:
            table.refuse(
                f"texts[{index}]", f"is empty, or all are over {limits.max_request_bytes} bytes"
            )
    if not found:
        table.refuse("texts", "is empty")
    return found


def parse_nothing(options: Mapping[str, object]) -> None:
    """``options`` of a method that knows none yet."""
    Table(options, _fail, "options").finish()


def parse_question(question: str, limits: Limits) -> Ask:
    """The one argument of Ask. Raises InvalidRequest."""
    return parse_ask({"prompt": question}, limits)


def parse_delivery(options: Mapping[str, object]) -> Delivery:
    """``options`` of CreateJob. Raises InvalidRequest."""
    table = Table(options, _fail, "options")
    delivery = Delivery(
        format=table.choice("format", FORMATS, "ndjson"),
        job_class=_job_class(table),
        deadline_s=Seconds(_whole(table, "deadline_ms", 0, 1, MAX_DEADLINE_MS) / 1000),
    )
    table.finish()
    return delivery


def _job_class(table: Table) -> JobClass | None:
    words = tuple(job_class.word for job_class in JobClass)
    return JobClass.of(table.choice("class", words)) if table.has("class") else None


def parse_text(text: str) -> str:
    """The argument of Tokenize and CountTokens; may be empty. Raises InvalidRequest."""
    return _sound(Table({"text": text}, _fail), "text", text)


def _question(table: Table, limits: Limits) -> tuple[str, tuple[Message, ...]]:
    limit = limits.max_request_bytes
    if table.has("prompt") and table.has("messages"):
        table.refuse("messages", "give prompt or messages, not both")
    if not table.has("prompt") and not table.has("messages"):
        table.refuse("prompt", "missing (or give messages)")
    system = _text(table, "system", limit, default="")
    head = (Message("system", system),) if system else ()
    if table.has("prompt"):
        prompt = _text(table, "prompt", limit)
        if not prompt:
            table.refuse("prompt", "is empty")
        return ("", (*head, Message("user", prompt))) if head else (prompt, ())
    messages = tuple(
        parse_message(item, limit) for item in table.tables("messages", max_items=MAX_MESSAGES)
    )
    if not any(message.content for message in messages):
        table.refuse("messages", "is empty")
    if head and messages[0].role == "system":
        table.refuse("system", "messages begin with a system message already")
    return "", head + messages


def _sampling(table: Table, default: Sampling) -> Sampling:
    """As configuration reads it; ``repeat_last_n`` stays the operator's."""
    readers = SECTIONS["sampling"]
    keys = [key for key in readers if key != "repeat_last_n"]
    values = {key: readers[key](table, key, getattr(default, key)) for key in keys}
    return replace(default, **values)  # type: ignore[arg-type]


def _stops(table: Table) -> tuple[str, ...]:
    value = table.raw("stop", ())
    if isinstance(value, str):
        stops: tuple[str, ...] = (value,)
    else:
        stops = table.texts("stop", (), max_items=MAX_STOPS)
    for index, stop in enumerate(stops):
        if not stop or len(stop.encode("utf-8", "surrogatepass")) > MAX_STOP_BYTES:
            table.refuse(f"stop[{index}]", f"must have 1..{MAX_STOP_BYTES} bytes")
        _sound(table, f"stop[{index}]", stop)
    return stops


def _whole(table: Table, key: str, absent: int, low: int, high: int) -> int:
    """``absent`` may lie outside the range: it means that the key was not given."""
    return table.whole(key, low=low, high=high) if table.has(key) else absent


def _text(table: Table, key: str, limit: int, default: str | None = None) -> str:
    return _sound(table, key, table.text(key, default, max_bytes=limit))


def _sound(table: Table, key: str, text: str) -> str:
    """No NUL (C strings end there), no lone surrogate (no UTF-8 for it)."""
    if "\0" in text:
        table.refuse(key, "has a NUL character")
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        table.refuse(key, "has a lone surrogate, which is no Unicode text")
    return text


def _fail(path: str, reason: str) -> StokerError:
    return InvalidRequest(f"cannot read request: {path}: {reason}", details={"path": path})
