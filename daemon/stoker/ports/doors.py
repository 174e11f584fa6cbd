"""What the doors in (D-Bus) may ask of the services, and what they are told.

Methods that return a Future answer later, from the service's own thread; the others
return at once from the last published snapshot. All of them may be called from any
thread and never block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, Protocol

from stoker.events.heat_finds import Found
from stoker.events.inference import (
    Ask,
    Delivery,
    JobTimes,
    MemoryUse,
    ModelInfo,
    Owner,
    TokenTotals,
)
from stoker.events.models import SwapResult
from stoker.events.realtime import Placed, RtView
from stoker.events.thermal import FrequencyPolicy, Reading, Sensor, ThermalSnapshot

OTHERS: Final = 0xFFFFFFFF
"""In place of a user ID: all users but the one who asks. The kernel's word for no user."""


@dataclass(frozen=True, slots=True)
class QueueLine:
    """Jobs of one user, or of OTHERS, and class."""

    uid: int
    job_class: str
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class InferenceSnapshot:
    """The inference service at one moment."""

    state: str = "starting"  # … | loading | ready | restarting | no-model | asleep | stopping
    reason: str = ""
    load_progress: float = 0.0
    model: str = ""
    engine: str = ""
    library: str = ""
    queue_depth: int = 0
    active_jobs: int = 0  # in the runner
    decoding_jobs: int = 0  # of them, those that do not stand still
    threads: int = 0  # while it writes; heat may lower them
    most_threads: int = 0  # as configured
    phase: str = ""  # prefill | decode | "" (nothing is computed)
    fingerprint: str = ""  # tells the loaded model file from another one
    placement: Placed = Placed()
    runner_pid: int = 0
    runner_restarts: int = 0
    runner_memory_bytes: int = 0
    memory: MemoryUse | None = None  # of the model in use, as planned
    memory_level: str = "calm"  # calm | tight | critical
    tokens: TokenTotals = TokenTotals()
    sampled_tokens: int = 0  # also of answers under way; since the runner started


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as its owner may see it."""

    id: str
    owner: Owner
    state: str  # queued | running | done | failed
    job_class: str = "normal"  # interactive | normal | background
    queue_position: int = 0
    eta_s: float = 0.0  # estimated, until it runs (again)
    text: str = ""
    reasoning: str = ""
    truncated: bool = False  # text was longer than max_result_bytes
    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    error_code: str = ""
    error_message: str = ""
    tool_calls: str = ""  # JSON list in OpenAI's form
    logprobs: str = ""  # JSON list, one object a token
    model: str = ""
    cached_tokens: int = 0  # of the prompt
    times: JobTimes = JobTimes()


@dataclass(frozen=True, slots=True)
class InferenceListener:
    """Called from the service's thread; must only hand over (e.g. to the main loop)."""

    job_started: Callable[[JobView], None] = lambda _job: None
    job_finished: Callable[[JobView], None] = lambda _job: None
    job_forgotten: Callable[[str], None] = lambda _id: None
    changed: Callable[[InferenceSnapshot], None] = lambda _snapshot: None
    saved: Callable[[Mapping[str, object]], None] = lambda _owners: None
    """A runner is ready; whose states it has on disk: UID as text -> conversations."""


class InferenceDoor(Protocol):
    def listen(self, listener: InferenceListener) -> None: ...

    def submit(self, ask: Ask, delivery: Delivery, owner: Owner, stream_fd: int) -> Future[JobView]:
        """Accept a job or fail with a typed error (busy, model-unavailable, …).

        ``stream_fd`` is the write end of the caller's pipe: the service owns it from
        here on, whatever happens, and closes it. -1 = no stream, only the result.
        """

    def answer(self, ask: Ask, owner: Owner) -> Future[JobView]:
        """As ``submit``, but the future completes when the job ended (Ask on D-Bus)."""

    def cancel(self, job: str, reason: str) -> Future[bool]:
        """False when there is no such running job."""

    def caller_vanished(self, unique_name: str) -> None:
        """Cancel every job of that bus name."""

    def job(self, job: str) -> Future[JobView]:
        """NotFound when it is unknown or forgotten."""

    def tokenize(self, text: str, owner: Owner) -> Future[list[int]]:
        """Busy when others, or others of this user, are waiting for such answers."""

    def embed(self, texts: Sequence[str], owner: Owner) -> Future[tuple[list[list[float]], int]]:
        """(one vector of length 1 a text, tokens read). Busy as for ``tokenize``."""

    def score(self, text: str, owner: Owner) -> Future[tuple[float, int]]:
        """(nats of all tokens after the first, how many). Busy as for ``tokenize``."""

    def models(self) -> tuple[ModelInfo, ...]:
        """Looks at files: not for a thread that must not wait."""

    def queue(self, seen_by: int | None) -> Future[tuple[QueueLine, ...]]:
        """The busiest first, a few dozen at most."""

    def list_models(self) -> Future[tuple[ModelInfo, ...]]: ...

    def forget(self, uid: int, conversation: str) -> None:
        """The runner drops what it has kept of a conversation. Without a runner nothing is
        sent: the next one tells what it has (``InferenceListener.saved``).
        """

    def restart_runner(self) -> Future[None]: ...

    def select_model(self, name: str) -> Future[SwapResult]:
        """Make this model (or alias) the one that serves. Fails with ModelUnavailable once the
        old one serves again, with Busy while another change is under way.
        """

    def usage(self) -> Future[InferenceSnapshot]:
        """The snapshot with the runner's memory, which takes a look into /proc."""

    def snapshot(self) -> InferenceSnapshot: ...


@dataclass(frozen=True, slots=True)
class ThermalDetails:
    snapshot: ThermalSnapshot
    sensors: tuple[tuple[Sensor, Reading], ...] = ()
    policies: tuple[FrequencyPolicy, ...] = ()


@dataclass(frozen=True, slots=True)
class ThermalListener:
    changed: Callable[[ThermalSnapshot], None] = field(default=lambda _snapshot: None)


class ThermalDoor(Protocol):
    def listen(self, listener: ThermalListener) -> None: ...

    def snapshot(self) -> ThermalSnapshot: ...

    def details(self) -> ThermalDetails: ...

    def lateness(self) -> dict[int, int]:
        """Looks of the loop by how late they were: upper end in ms (0 = later) -> count."""

    def discover(self) -> Future[tuple[Found, ...]]:
        """All that this board shows of heat; Unavailable where it cannot be searched."""


@dataclass(frozen=True, slots=True)
class CpuShare:
    """CPUs of the runner's own, as stoker-slice left them; a kernel list such as 2-3."""

    state: str = "unknown"  # partition | cpuset (its own, but shared) | none | unknown
    cpus: str = ""
    reason: str = ""


class AgentDoor(Protocol):
    """The agent as a whole; wired in main."""

    def reload(self) -> Future[tuple[str, ...]]:
        """Keys that changed but need a restart; ConfigInvalid changes nothing."""

    def uptime_s(self) -> float: ...

    def cpu_share(self) -> CpuShare: ...

    def realtime(self, runner_pid: int) -> RtView:
        """Where and how the runner's threads run now; 0 = there is no runner."""
