"""What the doors in (D-Bus) may ask of the services, and what they are told.

Methods that return a Future answer later, from the service's own thread; the others
return at once from the last published snapshot. All of them may be called from any
thread and never block.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from stoker.events.inference import Ask, Delivery, ModelInfo, Owner
from stoker.events.thermal import FrequencyPolicy, Reading, Sensor, ThermalSnapshot


@dataclass(frozen=True, slots=True)
class InferenceSnapshot:
    """The inference service at one moment."""

    state: str = "starting"  # starting | loading | ready | restarting | no-model | stopping
    reason: str = ""
    load_progress: float = 0.0
    model: str = ""
    engine: str = ""
    library: str = ""
    queue_depth: int = 0
    active_jobs: int = 0  # in the runner
    decoding_jobs: int = 0  # of them, those that do not stand still
    threads: int = 0
    runner_pid: int = 0
    runner_restarts: int = 0
    runner_memory_bytes: int = 0


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


@dataclass(frozen=True, slots=True)
class InferenceListener:
    """Called from the service's thread; must only hand over (e.g. to the main loop)."""

    job_started: Callable[[JobView], None] = lambda _job: None
    job_finished: Callable[[JobView], None] = lambda _job: None
    job_forgotten: Callable[[str], None] = lambda _id: None
    changed: Callable[[InferenceSnapshot], None] = lambda _snapshot: None


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

    def tokenize(self, text: str) -> Future[list[int]]: ...

    def models(self) -> tuple[ModelInfo, ...]: ...

    def restart_runner(self) -> Future[None]: ...

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
