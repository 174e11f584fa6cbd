"""One answer on its way to a terminal, a pipe or a program: shared by ask and chat.

It waits for a model that is loading, shows what is going on while nothing comes, and
writes each piece when it is there. What is asked is not its business.
"""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from stoker.cli.bars import Bar
from stoker.cli.terminal import Terminal
from stoker_client import Options, Record, Stoker, StokerClientError, Stream
from stoker_client.requests import Messages

Begun = TypeVar("Begun")
LOAD_LIMIT_S: Final = 600.0
_QUIET_S: Final = 0.5  # nothing came for so long: say what is going on
_BUSY_STATES: Final = ("starting", "loading", "restarting")


@dataclass(slots=True)
class Answer:
    """What was written so far; ``end`` is the last record, when there was one."""

    text: str = ""
    end: Record = field(default_factory=lambda: Record("other"))
    omitted_turns: int = 0  # of a kept conversation: what did not go to the model


def options_of(args: Namespace) -> Options:
    """The options of the command line that were given."""
    options: Options = {}
    if args.system is not None:
        options["system"] = args.system
    if args.model is not None:
        options["model"] = args.model
    if args.max_tokens is not None:
        options["max_tokens"] = args.max_tokens
    if args.temperature is not None:
        options["temperature"] = args.temperature
    if args.seed is not None:
        options["seed"] = args.seed
    if args.stop:
        options["stop"] = args.stop
    if args.timeout is not None:
        options["deadline_s"] = args.timeout
    if args.job_class is not None:
        options["job_class"] = args.job_class
    _shape(args, options)
    if getattr(args, "raw", False):
        options["raw"] = True
    return options


def _shape(args: Namespace, options: Options) -> None:
    """What ``ask`` alone knows: the form of the answer, reasoning, adapters."""
    schema = getattr(args, "json_schema", None)
    if getattr(args, "schema", None) is not None:
        schema = read_text(args.schema)
    if schema is not None:
        try:
            form = {"type": "json_schema", "json_schema": {"schema": json.loads(schema)}}
        except (ValueError, RecursionError) as fault:
            raise StokerClientError(
                "invalid-request", f"cannot read the schema: it is no JSON: {fault}"
            ) from fault
        options["response_format"] = form
    if getattr(args, "grammar", None) is not None:
        options["grammar"] = read_text(args.grammar)
    if getattr(args, "reasoning_tokens", None) is not None:
        options["reasoning_tokens"] = args.reasoning_tokens
    if getattr(args, "lora", None):
        options["lora"] = dict(_adapter(word) for word in args.lora)


def read_text(path: str) -> str:
    """A small text file that belongs to the question."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        reason = fault.strerror if isinstance(fault, OSError) else "it is not UTF-8"
        raise StokerClientError("invalid-request", f"cannot read {path}: {reason}") from fault


def _adapter(word: str) -> tuple[str, float]:
    name, mark, scale = word.partition("=")
    try:
        return name, float(scale) if mark else 1.0
    except ValueError as fault:
        raise StokerClientError(
            "invalid-request", f"cannot use --lora {word}: {scale!r} is no number"
        ) from fault


def begin(stoker: Stoker, question: str | Messages, options: Options, terminal: Terminal) -> Stream:
    """Start the job; while a model loads, wait for it (at most the deadline, or 10 minutes)."""
    return patiently(stoker, lambda: stoker.stream(question, **options), options, terminal)


def patiently(
    stoker: Stoker, start: Callable[[], Begun], options: Options, terminal: Terminal
) -> Begun:
    """``start``, and once more when a model that was loading is there."""
    try:
        return start()
    except StokerClientError as error:
        if error.code != "model-loading":
            raise
    bar = Bar(shown=terminal.err_is_tty)
    try:
        stoker.wait_ready(
            options.get("deadline_s", LOAD_LIMIT_S),
            lambda state, share: bar.update(_load_title(state), share),
        )
    finally:
        bar.close()
    return start()


class Writer:
    """Writes the records of one stream. ``answer`` is right at any moment, even after Ctrl-C."""

    def __init__(self, terminal: Terminal, *, reasoning: bool) -> None:
        self.answer = Answer()
        self._terminal = terminal
        self._reasoning = reasoning or terminal.colour
        self._bar = Bar(shown=terminal.err_is_tty and not terminal.as_json)
        self._part = ""  # kind of the last text written
        self._line_open = False

    def write(self, stream: Stream, stoker: Stoker) -> Answer:
        """All of it. Raises what the stream raises; ends an open line in any case."""
        try:
            self._wait_for_first(stream, stoker)
            started = time.monotonic()
            for record in stream:
                if self._terminal.as_json:
                    self._terminal.json(record.data)
                self._take(record, time.monotonic() - started)
        finally:
            self._bar.close()
            if self._line_open:
                self._terminal.line()
        return self.answer

    def _take(self, record: Record, waited_s: float) -> None:
        match record.kind:
            case "text":
                self.answer.text += record.text
                self._piece(record)
            case "reasoning" if self._reasoning:
                self._piece(record)
            case "progress" if not self._part and waited_s > _QUIET_S and record.total:
                self._bar.update("reading the prompt", record.done / record.total)
            case "tool":
                self._call(record)
            case "session":
                self.answer.omitted_turns = record.omitted_turns
            case "done":
                self.answer.end = record

    def _piece(self, record: Record) -> None:
        terminal = self._terminal
        if terminal.as_json or not record.text:
            return
        self._bar.close()
        text = terminal.clean(record.text)
        if self._part != record.kind:
            # An answer after reasoning stands apart from it, without the model's own gap.
            gap = "" if not self._part else ("\n\n" if self._line_open else "\n")
            text = gap + (text.lstrip("\n") if self._part else text)
            self._part = record.kind
        if text:  # before the write: an interrupt may come with it
            self._line_open = not text.endswith("\n")
        terminal.write(terminal.paint(text, "dim") if record.kind == "reasoning" else text)

    def _call(self, record: Record) -> None:
        """A call that the model wants made: one line, since nobody here makes it."""
        if not self._terminal.as_json:
            self._bar.close()
            gap = "\n" if self._line_open else ""
            line = json.dumps(dict(record.call), ensure_ascii=False)
            self._terminal.write(f"{gap}{self._terminal.clean(line)}\n")
            self._line_open = False

    def _wait_for_first(self, stream: Stream, stoker: Stoker) -> None:
        """A queued job says nothing: look whether the agent is loading, and show that."""
        if not self._terminal.err_is_tty or self._terminal.as_json:
            return
        while not stream.wait(_QUIET_S):
            state, share = stoker.load_state()
            if state in _BUSY_STATES:
                self._bar.update(_load_title(state), share)
        self._bar.close()


def stats(record: Record) -> str:
    """Tokens and times of a ``done`` record in one line; what is unknown is left out."""
    usage, timings = record.inner("usage"), record.inner("timings")
    done = record.data.get("done")
    parts = []
    for words, count, rate in (
        ("prompt tokens", "prompt_tokens", "prefill_tok_s"),
        ("answer tokens", "completion_tokens", "decode_tok_s"),
    ):
        if count in usage:
            speed = timings.get(rate)
            each = f" ({speed:.1f} a second)" if isinstance(speed, float) else ""
            parts.append(f"{usage[count]} {words}{each}")
    if usage.get("cached_tokens"):
        parts.insert(1, f"{usage['cached_tokens']} of them known already")
    for words, key in (
        ("messages left out", "omitted_messages"),
        ("tokens shifted out", "shifted_tokens"),
    ):
        left_out = done.get(key) if isinstance(done, Mapping) else 0
        if left_out:
            parts.append(f"{left_out} {words}")
    first = timings.get("first_token_ms")
    if isinstance(first, float):
        parts.append(f"the first after {first:.1f} ms")
    return ", ".join([*parts, f"ended by {record.finish_reason or 'nothing'}"])


def _load_title(state: str) -> str:
    return {"loading": "loading the model", "restarting": "the runner restarts"}.get(
        state, "the agent starts"
    )
