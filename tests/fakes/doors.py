"""Services that behave, for tests of the doors: no model, no sensors, real threads.

What a job does is told by its prompt: ``words`` are echoed token by token;
``hold`` streams one token and then waits for its cancellation; ``wait MS`` answers
later; ``refuse CODE`` is not accepted; ``break CODE`` fails after its first token;
``signals N`` says started and finished N times; ``describe`` answers with what arrived.
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from stoker.errors import NotFound, by_code
from stoker.events.heat_finds import Finding, Found
from stoker.events.inference import Ask, Delivery, ModelInfo, Owner
from stoker.events.models import ProbeReport, SwapResult
from stoker.events.realtime import RtView
from stoker.events.thermal import FrequencyPolicy, Reading, Sensor, ThermalSnapshot
from stoker.ports.doors import (
    CpuShare,
    InferenceListener,
    InferenceSnapshot,
    JobView,
    QueueLine,
    ThermalDetails,
    ThermalListener,
)
from stoker.units import Celsius, Fraction, KiloHertz, Seconds

T = TypeVar("T")


@dataclass
class _Job:
    view: JobView
    ask: Ask
    delivery: Delivery
    fd: int
    stop: threading.Event = field(default_factory=threading.Event)
    done: Future[JobView] = field(default_factory=Future)


class FakeInference:
    """An InferenceDoor; every job has a thread."""

    def __init__(self, keep_result_s: float = 60.0) -> None:
        self.vanished: list[str] = []
        self.cancelled: list[tuple[str, str]] = []
        self._listeners: list[InferenceListener] = []
        self._jobs: dict[str, _Job] = {}
        self._keep_s = keep_result_s
        self._snapshot = InferenceSnapshot(
            state="ready", model="fake", engine="fake", library="none", threads=1, runner_pid=1
        )
        self._restarts = 0
        self._lock = threading.Lock()

    def listen(self, listener: InferenceListener) -> None:
        self._listeners.append(listener)

    def submit(self, ask: Ask, delivery: Delivery, owner: Owner, stream_fd: int) -> Future[JobView]:
        accepted: Future[JobView] = Future()
        words = _words(ask)
        if words[:1] == ["refuse"]:
            if stream_fd >= 0:
                os.close(stream_fd)
            accepted.set_exception(
                by_code(words[1])("cannot take job: told so", details={"retry_after_ms": 7})
            )
            return accepted
        job = _Job(JobView(uuid.uuid4().hex, owner, "queued"), ask, delivery, stream_fd)
        self._jobs[job.view.id] = job
        threading.Thread(target=self._run, args=(job, accepted), daemon=True).start()
        return accepted

    def answer(self, ask: Ask, owner: Owner) -> Future[JobView]:
        accepted = self.submit(ask, Delivery(), owner, -1)
        if accepted.done() and accepted.exception():
            return accepted
        ended: Future[JobView] = Future()
        accepted.add_done_callback(
            lambda done: self._jobs[done.result().id].done.add_done_callback(
                lambda last: ended.set_result(last.result())
            )
        )
        return ended

    def cancel(self, job: str, reason: str) -> Future[bool]:
        found = self._jobs.get(job)
        self.cancelled.append((job, reason))
        if found is not None:
            found.stop.set()
        return _now(found is not None)

    def caller_vanished(self, unique_name: str) -> None:
        self.vanished.append(unique_name)
        for job in tuple(self._jobs.values()):
            if job.view.owner.unique_name == unique_name:
                job.stop.set()

    def job(self, job: str) -> Future[JobView]:
        found = self._jobs.get(job)
        if found is None:
            failed: Future[JobView] = Future()
            failed.set_exception(NotFound(f"cannot find job {job}: forgotten"))
            return failed
        return _now(found.view)

    def tokenize(self, text: str, owner: Owner) -> Future[list[int]]:
        return _now(list(text.encode()))

    def embed(self, texts: Sequence[str], owner: Owner) -> Future[tuple[list[list[float]], int]]:
        return _now(([[1.0, 0.0] for _ in texts], sum(map(len, texts))))

    def score(self, text: str, owner: Owner) -> Future[tuple[float, int]]:
        return _now((2.5 * len(text), len(text)))

    def models(self) -> tuple[ModelInfo, ...]:
        broken = ModelInfo("broken", "/m/broken.gguf", 0, "set-aside", "crashed 3 times")
        return (
            ModelInfo("fake", "/m/fake.gguf", 98 << 20, "ready", default=True, context_tokens=2048),
            broken,
        )

    def queue(self, seen_by: int | None) -> Future[tuple[QueueLine, ...]]:
        future: Future[tuple[QueueLine, ...]] = Future()
        future.set_result((QueueLine(1000, "normal", 2, 3), QueueLine(0, "background", 0, 1)))
        return future

    def list_models(self) -> Future[tuple[ModelInfo, ...]]:
        return _now(self.models())

    def usage(self) -> Future[InferenceSnapshot]:
        return _now(self._snapshot)

    def select_model(self, name: str) -> Future[SwapResult]:
        self.set(model=name)
        return _now(SwapResult(name, "fake", True, Seconds(1.5), 2, ProbeReport()))

    def forget(self, uid: int, conversation: str) -> None: ...

    def restart_runner(self) -> Future[None]:
        self._restarts += 1
        self.set(runner_restarts=self._restarts)
        return _now(None)

    def snapshot(self) -> InferenceSnapshot:
        return self._snapshot

    def set(self, **facts: object) -> None:
        with self._lock:
            self._snapshot = replace(self._snapshot, **facts)  # type: ignore[arg-type]
        for listener in self._listeners:
            listener.changed(self._snapshot)

    def _count(self, step: int) -> None:
        with self._lock:
            active = self._snapshot.active_jobs + step
        self.set(active_jobs=active)

    def _run(self, job: _Job, accepted: Future[JobView]) -> None:
        self._count(1)
        accepted.set_result(job.view)
        job.view = replace(job.view, state="running")
        self._tell_started(job)
        error = self._stream(job)
        last: dict[str, object] = {"done": {"finish_reason": "stop", "usage": {}, "timings": {}}}
        job.view = replace(job.view, state="done", finish_reason="stop", completion_tokens=3)
        if error:
            message = f"cannot finish job: {error}"
            last = {"error": {"code": error, "message": message}}
            job.view = replace(
                job.view, state="failed", finish_reason="", error_code=error, error_message=message
            )
        self._tell_finished(job)  # before its reader, as the real one
        self._write(job, last)
        if job.fd >= 0:
            os.close(job.fd)
        job.done.set_result(job.view)
        self._count(-1)
        threading.Timer(self._keep_s, self._forget, (job.view.id,)).start()

    def _stream(self, job: _Job) -> str:
        """Does what the prompt says; returns the code of the error that ended it."""
        match _words(job.ask):
            case ["hold", *_]:
                self._token(job, "holding")
                while not job.stop.wait(0.01):
                    if not self._write(job, {"p": {"done": 1, "total": 2}}):
                        break
                return "cancelled"
            case ["wait", milliseconds]:
                job.stop.wait(int(milliseconds) / 1000)
                return "cancelled" if job.stop.is_set() else self._token(job, "late")
            case ["break", code]:
                self._token(job, "first")
                return code
            case ["signals", number]:
                for _ in range(int(number)):
                    self._tell_started(job)
                    self._tell_finished(job)
                return ""
            case ["describe"]:
                facts: dict[str, Any] = {
                    "ask": job.ask, "delivery": job.delivery, "owner": job.view.owner,
                }  # fmt: skip
                text = json.dumps({name: asdict(value) for name, value in facts.items()})
                return self._token(job, text)
            case words:
                for word in words:
                    error = self._token(job, word + " ")
                    if error:
                        return error
                return ""

    def _token(self, job: _Job, text: str) -> str:
        job.view = replace(job.view, text=job.view.text + text)
        return "" if self._write(job, {"t": text}) else "cancelled"

    def _write(self, job: _Job, record: dict[str, object]) -> bool:
        """False when the reader is gone or the job was cancelled."""
        line = json.dumps(record, ensure_ascii=False) + "\n"
        if job.delivery.format == "text":
            line = str(record.get("t", ""))
        rest = line.encode()
        while rest and job.fd >= 0:
            try:
                rest = rest[os.write(job.fd, rest) :]
            except BlockingIOError:
                if job.stop.wait(0.01):
                    return False
            except BrokenPipeError:
                return False
        return True

    def _tell_started(self, job: _Job) -> None:
        for listener in self._listeners:
            listener.job_started(job.view)

    def _tell_finished(self, job: _Job) -> None:
        for listener in self._listeners:
            listener.job_finished(job.view)

    def _forget(self, job: str) -> None:
        self._jobs.pop(job, None)
        for listener in self._listeners:
            listener.job_forgotten(job)


class FakeThermal:
    """A ThermalDoor at 51.5 °C."""

    def __init__(self) -> None:
        self._listener = ThermalListener()
        self._snapshot = ThermalSnapshot(
            state="ok", temperature_c=Celsius(51.5), wall_c=Celsius(75.0), headroom=Fraction(0.8),
            board="fake", sensor="cpu", cap_khz={"policy0": KiloHertz(1_500_000)},
            actuator="cpufreq",
        )  # fmt: skip

    def listen(self, listener: ThermalListener) -> None:
        self._listener = listener

    def snapshot(self) -> ThermalSnapshot:
        return self._snapshot

    def set(self, **facts: object) -> None:
        self._snapshot = replace(self._snapshot, **facts)  # type: ignore[arg-type]
        self._listener.changed(self._snapshot)

    def details(self) -> ThermalDetails:
        sensors = (
            (Sensor("cpu", "zone", "/sys/x"), Reading("cpu", Celsius(51.5))),
            (Sensor("nvme", "hwmon", "/sys/y"), Reading("nvme", None, "ENODATA")),
        )
        steps = (KiloHertz(600_000), KiloHertz(1_500_000))
        policy = FrequencyPolicy("policy0", (0, 1), steps[0], steps[1], steps, writable=True)
        return ThermalDetails(self._snapshot, sensors, (policy,))

    def lateness(self) -> dict[int, int]:
        return {1: 7, 0: 0}

    def discover(self) -> Future[tuple[Found, ...]]:
        zone = Finding("zone", "cpu", "/sys/x", "51.5 °C")
        meter = Finding("power", "package-0", "/sys/z", "", "EACCES", "read")
        return _now((Found(zone, "holds policy0"), Found(meter, "not used", "grant does it")))


class FakeAgent:
    """An AgentDoor whose configuration is always fine."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self.on_reload: Callable[[], None] = lambda: None

    def reload(self) -> Future[tuple[str, ...]]:
        self.on_reload()
        return _now(("daemon.bus",))

    def uptime_s(self) -> float:
        return time.monotonic() - self._start

    def cpu_share(self) -> CpuShare:
        return CpuShare("partition", "2-3")

    def realtime(self, runner_pid: int) -> RtView:
        return RtView(
            "cpuset", "told so", "2-3", "set", "other", 4096, "6.1", "PREEMPT", ("note",), nice=-10
        )


class FakeAuthority:
    """An Authority of a fixed set of users; ``gateway`` may speak for others."""

    def __init__(self, admins: frozenset[int], gateway: int = -1) -> None:
        self._admins, self._gateway = admins, gateway

    def speaks_for_others(self, uid: int) -> bool:
        return uid == self._gateway

    def may_manage(self, uid: int) -> bool:
        return uid in self._admins

    def admit(self, owner: Owner) -> Future[bool]:
        return _now(self.may_manage(owner.uid))


def _words(ask: Ask) -> list[str]:
    return (ask.messages[-1].content if ask.messages else ask.prompt).split()


def _now(value: T) -> Future[T]:
    done: Future[T] = Future()
    done.set_result(value)
    return done
