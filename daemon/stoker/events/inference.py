"""Values of the inference path: what a caller asked for and what a job is."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from stoker.events.runner import Message, Sampling
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


@dataclass(frozen=True, slots=True)
class RunnerExit:
    """How a runner ended; ``oom_killed`` when the kernel says it was its doing."""

    status: int | None = None
    signal: int | None = None
    oom_killed: bool = False

    def text(self) -> str:
        if self.oom_killed:
            return "killed by the kernel: out of memory"
        if self.signal is not None:
            return f"killed by signal {self.signal}"
        return f"exit status {self.status}"
