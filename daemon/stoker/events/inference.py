"""Values of the inference path: what a caller asked for and what a job is."""

from __future__ import annotations

from dataclasses import dataclass, field

from stoker.events.runner import Message, Sampling
from stoker.units import Seconds


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
    """How the caller wants it: ``ndjson`` records or bare ``text``."""

    format: str = "ndjson"
    deadline_s: Seconds = Seconds(0.0)  # 0 = the configured default


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
