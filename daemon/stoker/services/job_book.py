"""The jobs that are alive or remembered: their text, their stream, their end.

Owned by the inference service's thread. It feeds pipes and keeps results; who runs
next is the scheduler's decision, what a stream line looks like is ``core.records``.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

from stoker.config.schema import InferenceConfig
from stoker.core import records
from stoker.core.latency import counts_of
from stoker.errors import QuotaExceeded, StokerError
from stoker.events.inference import Ask, Delivery, JobClass, JobTimes, Owner
from stoker.events.prompt import ToolCall
from stoker.events.runner import Delta
from stoker.ports.doors import JobView
from stoker.ports.streams import Poller, StreamSink
from stoker.units import Seconds

NEVER: Final = Seconds(float("inf"))
MAX_UNREAD: Final = 64  # ended jobs of one user whose streams are still open
# Remembered jobs share what they no longer need: there are thousands after a minute of short ones,
# and Python's collector looks through all that they hold while everybody waits.
_NOTHING: Final = Ask()
_DELIVERED: Final = Delivery()
_NONE: Final[list[Any]] = []
_JOB_BYTES: Final = 4096  # what a remembered job costs beside its text
_ROOM_AFTER: Final = 7 / 8  # so that not every new result has to sort the old ones


@dataclass(slots=True)
class Job:
    """One job, from acceptance until it is forgotten."""

    id: str
    ask: Ask
    delivery: Delivery
    owner: Owner
    deadline_s: Seconds
    created_s: Seconds
    sink: StreamSink | None = None
    accepted: Future[JobView] | None = None
    result: Future[JobView] | None = None  # Ask: completes at the end
    job_class: JobClass = JobClass.NORMAL
    taken_back: int = 0  # how often from this runner
    state: str = "queued"
    started_s: Seconds = Seconds(0.0)
    ended_s: Seconds = Seconds(0.0)
    stalled_s: Seconds = Seconds(0.0)  # since when its reader took nothing; 0 = it reads
    paused: bool = False  # for its reader
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    logprobs: list[str] = field(default_factory=list)  # JSON
    kept_bytes: int = 0  # as text on the wire
    held_bytes: int = 0  # in memory, once it has ended: wide characters take up to four times that
    read: int = 0  # tokens evaluated and made, as they came: of jobs that have no usage
    made: int = 0
    truncated: bool = False
    streamed_s: Seconds = Seconds(0.0)  # when its first word came; 0 = none did
    done: Mapping[str, object] = field(default_factory=dict)
    gaps: tuple[int, ...] = ()
    model: str = ""
    error: StokerError | None = None

    @property
    def streamed(self) -> bool:
        return bool(self.streamed_s)

    @property
    def ended(self) -> bool:
        return self.state in ("done", "failed")

    @property
    def wire_id(self) -> str:
        """Its name in the runner: another one each time, so that late words are known."""
        return f"{self.id}.{self.taken_back}" if self.taken_back else self.id


class JobBook:
    """All jobs by id, and their descriptors in the poller."""

    def __init__(self, config: InferenceConfig, poller: Poller) -> None:
        self._config = config
        self._poller = poller
        self._jobs: dict[str, Job] = {}
        self._open: dict[str, Job] = {}  # what a turn looks at: not those only remembered
        self._by_fd: dict[int, str] = {}
        self._ended_bytes = 0
        self._oldest_s = NEVER

    def configure(self, config: InferenceConfig) -> None:
        self._config = config

    def add(self, job: Job) -> None:
        self._jobs[job.id] = self._open[job.id] = job
        if job.sink is not None:
            self._by_fd[job.sink.fileno()] = job.id
            self._poller.watch(job.sink.fileno())

    def get(self, job_id: str) -> Job | None:
        return self._jobs.get(job_id)

    def in_runner(self, wire_id: str) -> Job | None:
        """The live job that the runner means; None when it speaks of the past."""
        job = self._jobs.get(wire_id.partition(".")[0])
        return job if job is not None and not job.ended and job.wire_id == wire_id else None

    def of_fd(self, fd: int) -> Job | None:
        return self._jobs.get(self._by_fd.get(fd, ""))

    def of_owner(self, unique_name: str) -> list[Job]:
        return [job for job in self if job.owner.unique_name == unique_name]

    def crowded(self, owner: Owner) -> StokerError | None:
        """Why this user may have no further stream: each costs us a descriptor."""
        mine = [job for job in self if job.ended and job.owner.uid == owner.uid]
        if len(mine) < MAX_UNREAD:
            return None
        return QuotaExceeded(
            f"cannot accept job: {len(mine)} answers of yours are not read yet",
            hint="read or close the streams you have",
            details={"quota": "unread_streams"},
        )

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        """Those that have not ended, or whose stream is not read yet."""
        return iter(list(self._open.values()))

    def feed(self, job: Job, delta: Delta) -> None:
        """One step's output: kept for GetResult (bounded) and written to the stream."""
        job.read += delta.e
        job.made += delta.n
        self._keep(job, delta)
        self._write(job, records.of_delta(delta, job.delivery.format))

    def end(
        self, job: Job, now: Seconds, done: Mapping[str, object], error: StokerError | None
    ) -> None:
        """It is over; ``last_line`` tells its reader."""
        job.state = "failed" if error else "done"
        job.done = {key: value for key, value in done.items() if key != "gaps"}
        job.gaps = counts_of(done.get("gaps"))
        job.error, job.ended_s, job.model = error, now, job.ask.model
        job.ask = _NOTHING  # a remembered job must not keep a megabyte of prompt
        if job.accepted is not None and job.accepted.done():
            job.accepted = None
        job.text, job.reasoning = _whole(job.text), _whole(job.reasoning)  # nor 60 B a token
        job.calls, job.logprobs = job.calls or _NONE, job.logprobs or _NONE
        texts = (*job.text, *job.reasoning, *job.logprobs, *(call.arguments for call in job.calls))
        job.held_bytes = sum(map(sys.getsizeof, texts))

    def wait_again(self, job: Job) -> None:
        """Nobody has seen anything of it; it begins anew."""
        job.state, job.read, job.made = "queued", 0, 0

    def last_line(self, job: Job) -> None:
        """Write the typed last line; the stream closes once it is read."""
        form, error = job.delivery.format, job.error
        last = records.of_error(error, form) if error else records.of_done(job.done, form)
        self._write(job, last)
        self._close_if_drained(job)

    def answer(self, job: Job, view: JobView) -> None:
        """Of Ask: to whoever waits for the whole; once."""
        waiting, job.result = job.result, None
        if waiting is None:
            return
        if job.error is not None:
            waiting.set_exception(job.error)
        else:
            waiting.set_result(view)

    def drain(self, job: Job, now: Seconds) -> None:
        """The pipe takes bytes again."""
        sink = job.sink
        if sink is not None:
            if sink.flush():
                job.stalled_s = Seconds(0.0)
            self._watch(job, now)
            self._close_if_drained(job)

    def check_reader(self, job: Job, now: Seconds) -> str:
        """ "pause", "resume", "slow" or "" for a job whose reader is behind."""
        sink = job.sink
        if sink is None:
            return ""
        self._watch(job, now)
        if job.stalled_s and now - job.stalled_s > self._config.slow_reader_timeout_s:
            return "slow"
        if not job.paused and sink.pending_bytes > self._config.stream_buffer_bytes:
            return "pause"
        if job.paused and sink.pending_bytes * 2 < self._config.stream_buffer_bytes:
            return "resume"
        return ""

    def hang_up(self, job: Job) -> None:
        """Close the stream, read or not."""
        sink = job.sink
        if sink is not None:
            self._poller.unwatch(sink.fileno())
            self._by_fd.pop(sink.fileno(), None)
            sink.close()
            job.sink = None
        self._settle(job)

    def drop(self, job: Job) -> None:
        """Forget a job that was never accepted."""
        self._jobs.pop(job.id, None)
        self._open.pop(job.id, None)

    def forget_old(self, now: Seconds) -> list[str]:
        """Ids of ended jobs that are gone now: older than ``keep_result_s``, or, once all
        results together are over ``keep_results_bytes``, the oldest of those users who hold
        more than an equal share: nobody's flood takes another user's answers away. A stream
        that is still being read ends with its last line first.
        """
        if not self._next_forget(now):
            return []
        limit = self._config.keep_result_s
        read = [job for job in self._jobs.values() if job.id not in self._open]
        ended = sorted(read, key=lambda job: job.ended_s)
        held: Counter[int] = Counter()
        for job in ended:
            held[job.owner.uid] += _weight(job)
        over = held.total() > self._config.keep_results_bytes
        share = self._config.keep_results_bytes * _ROOM_AFTER / max(len(held), 1)
        old: list[str] = []
        for job in ended:
            excess = over and held[job.owner.uid] > share
            if now - job.ended_s < limit and not excess:
                continue
            held[job.owner.uid] -= _weight(job)
            del self._jobs[job.id]
            old.append(job.id)
        self._ended_bytes = held.total()
        self._oldest_s = min((job.ended_s for job in ended if job.id in self._jobs), default=NEVER)
        return old

    def evict(self) -> list[str]:
        """Ids of the ended jobs whose results go before their time: memory is short."""
        old = [job.id for job in self._jobs.values() if job.id not in self._open]
        for job_id in old:
            del self._jobs[job_id]
        self._ended_bytes, self._oldest_s = 0, NEVER
        return old

    def _next_forget(self, now: Seconds) -> bool:
        over = self._ended_bytes > self._config.keep_results_bytes
        return over or now - self._oldest_s >= self._config.keep_result_s

    def view(self, job: Job, position: int, eta_s: Seconds) -> JobView:
        usage = job.done.get("usage")
        counts = usage if isinstance(usage, Mapping) else {}
        return JobView(
            id=job.id,
            owner=job.owner,
            state=job.state,
            job_class=job.job_class.word,
            queue_position=position,
            eta_s=eta_s,
            text="".join(job.text),
            reasoning="".join(job.reasoning),
            truncated=job.truncated,
            finish_reason=str(job.done.get("finish_reason", "")),
            prompt_tokens=int(counts.get("prompt_tokens", job.read)),
            completion_tokens=int(counts.get("completion_tokens", job.made)),
            error_code=job.error.code if job.error else "",
            error_message=job.error.message if job.error else "",
            tool_calls=records.tool_calls(job.calls) if job.calls else "",
            logprobs=f"[{','.join(job.logprobs)}]" if job.logprobs else "",
            model=job.model or job.ask.model,
            cached_tokens=int(counts.get("cached_tokens", 0)),
            times=_times(job),
        )

    def _keep(self, job: Job, delta: Delta) -> None:
        size = len(delta.t.encode("utf-8", "replace")) + len(delta.r.encode("utf-8", "replace"))
        likely = records.logprobs(delta) if delta.lp is not None else ""
        size += len(likely) + sum(len(call.arguments) for call in delta.tools)
        if job.truncated or job.kept_bytes + size > self._config.max_result_bytes:
            job.truncated = True  # for good: a smaller piece after a missing one makes a hole
            return
        job.kept_bytes += size
        if delta.t:
            job.text.append(delta.t)
        if delta.r:
            job.reasoning.append(delta.r)
        if likely:
            job.logprobs.append(likely)
        job.calls += delta.tools

    def _write(self, job: Job, data: bytes) -> None:
        if job.sink is not None and data:
            job.sink.write(data)

    def _watch(self, job: Job, now: Seconds) -> None:
        """Ask for writability only while something waits, and time how long it waits."""
        sink = job.sink
        if sink is None:
            return
        waiting = sink.pending_bytes > 0
        self._poller.watch(sink.fileno(), writable=waiting)
        if not waiting:
            job.stalled_s = Seconds(0.0)
        elif not job.stalled_s:
            job.stalled_s = now

    def _close_if_drained(self, job: Job) -> None:
        if job.ended and job.sink is not None and (job.sink.broken or not job.sink.pending_bytes):
            self.hang_up(job)
        self._settle(job)

    def _settle(self, job: Job) -> None:
        if job.ended and job.sink is None and job.id in self._open:
            del self._open[job.id]
            job.delivery = _DELIVERED
            self._ended_bytes += _weight(job)
            self._oldest_s = min(self._oldest_s, job.ended_s)


def _whole(parts: list[str]) -> list[str]:
    return ["".join(parts)] if parts else _NONE


def _times(job: Job) -> JobTimes:
    end_s = job.ended_s or job.created_s
    timings = job.done.get("timings")
    decode_ms = timings.get("decode_ms") if isinstance(timings, Mapping) else 0.0
    return JobTimes(
        waited_s=Seconds((job.started_s or end_s) - job.created_s),
        first_token_s=Seconds(job.streamed_s - job.created_s) if job.streamed else None,
        took_s=Seconds(end_s - job.created_s),
        decode_s=Seconds(decode_ms / 1e3 if isinstance(decode_ms, int | float) else 0.0),
        gaps=job.gaps,
    )


def _weight(job: Job) -> int:
    return _JOB_BYTES + job.held_bytes
