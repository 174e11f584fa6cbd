"""Values of the inference path: what a caller asked for and what a job is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from stoker.events.prompt import Message, Sampling, Shape
from stoker.units import Bytes, Seconds


class JobClass(IntEnum):
    """Who goes first. Background gives its place up to both others."""

    INTERACTIVE = 0
    NORMAL = 1
    BACKGROUND = 2

    @property
    def word(self) -> str:
        return self.name.lower()

    @classmethod
    def of(cls, word: str) -> JobClass:
        return cls[word.upper()]


@dataclass(frozen=True, slots=True)
class Quota:
    """What one user may have at a time; 0 = no limit of its own."""

    concurrent_jobs: int = 0  # answered together; more of them wait
    queued_jobs: int = 0
    queued_bytes: Bytes = Bytes(0)  # text of the requests that wait
    tokens_per_minute: int = 0  # read and written; up to one minute's worth at once


@dataclass(frozen=True, slots=True)
class Standing:
    """What policy grants a user."""

    highest: JobClass = JobClass.INTERACTIVE
    quota: Quota = field(default_factory=Quota)


@dataclass(frozen=True, slots=True)
class Ask:
    """A parsed request of a caller. ``model`` empty = the default model."""

    prompt: str = ""
    messages: tuple[Message, ...] = ()
    raw: bool = False
    model: str = ""
    max_tokens: int = 0  # 0 = the configured default
    stop: tuple[str, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    reasoning: bool = True
    shape: Shape = field(default_factory=Shape)
    overflow: str = ""  # one of events.prompt.OVERFLOW; "" = as configured
    keep: str = ""  # the conversation this is a turn of: its state may outlive the job


@dataclass(frozen=True, slots=True)
class Delivery:
    """How the caller wants it: ``ndjson`` records or bare ``text``, and how soon."""

    format: str = "ndjson"
    deadline_s: Seconds = Seconds(0.0)  # 0 = the configured default
    job_class: JobClass | None = None  # None = the door's default, as far as policy allows


@dataclass(frozen=True, slots=True)
class Owner:
    """Who asked, as the bus says it."""

    unique_name: str
    uid: int
    pid: int = 0


@dataclass(frozen=True, slots=True)
class JobTimes:
    """How long a job let its caller wait, by stokerd's clock. ``gaps``: between its tokens, as
    the runner counted them (``runner.gaps``), all in all ``decode_s``.
    """

    waited_s: Seconds = Seconds(0.0)  # in the queue, until it first ran
    first_token_s: Seconds | None = None  # since it was accepted; None = it said nothing
    took_s: Seconds = Seconds(0.0)
    decode_s: Seconds = Seconds(0.0)
    gaps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """What a loaded model was given, and what it is expected to take. ``gave_way`` says in a
    few words what is less than configured.
    """

    context_tokens: int
    slots: int
    kv_type: str
    kv_bytes: Bytes
    expected_bytes: Bytes
    gave_way: str = ""


@dataclass(frozen=True, slots=True)
class TokenTotals:
    """Of all answers since the start. ``cached``: those of ``prompt`` that were known already."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0

    def plus(self, usage: Mapping[str, object]) -> TokenTotals:
        """With one answer's usage, as the runner says it."""
        prompt, cached, completion = (
            found if isinstance(found, int) else 0
            for found in map(usage.get, ("prompt_tokens", "cached_tokens", "completion_tokens"))
        )
        return TokenTotals(self.prompt + prompt, self.cached + cached, self.completion + completion)


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One model the agent knows."""

    name: str
    path: str
    size_bytes: int
    state: str  # ready | loading | idle | missing | set-aside
    reason: str = ""
    default: bool = False
    description: str = ""
    context_tokens: int = 0
    aliases: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()  # LoRA adapters configured for it
    memory: MemoryUse | None = None  # of the model in use, as planned


_SIGILL: Final = 4  # illegal instruction


@dataclass(frozen=True, slots=True)
class RunnerExit:
    """How a runner ended; ``oom_killed`` when the kernel says it was its doing, ``unstarted``
    why there never was a process.
    """

    status: int | None = None
    signal: int | None = None
    oom_killed: bool = False
    unstarted: str = ""

    def text(self) -> str:
        if self.unstarted:
            return self.unstarted
        if self.oom_killed:
            return "killed by the kernel: out of memory"
        if self.signal == _SIGILL:
            return f"killed by signal {_SIGILL}: llama.cpp was built for another processor"
        if self.signal is not None:
            return f"killed by signal {self.signal}"
        return f"exit status {self.status}"
