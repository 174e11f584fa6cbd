"""Jobs from the caller's request to the last line: the scheduler's hands on the callers' side.

Owned by the inference loop's thread. Who runs is the scheduler's decision (``job_queue``),
text and pipes are ``job_book``'s; here requests come in, decisions go to the runner that
serves now, and its words go out. It knows no process and no poller.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Protocol

from stoker import errors
from stoker.config.schema import Config
from stoker.core import runner_life as life
from stoker.core import scheduler
from stoker.core.model_choice import Waiting
from stoker.events import runner as wire
from stoker.events.inference import Ask, Delivery, JobClass, Owner, Standing
from stoker.ports.doors import InferenceListener, JobView
from stoker.ports.streams import StreamSink
from stoker.ports.system import Clock
from stoker.services import job_errors
from stoker.services.job_book import Job, JobBook
from stoker.services.job_queue import JobQueue, granted
from stoker.services.runner_requests import generate_request
from stoker.units import Seconds

EVERYBODY = Standing()
Tell = Callable[[Callable[[InferenceListener], None]], None]


class Engines(Protocol):
    """The runners, as jobs need them."""

    def send(self, request: wire.Request) -> None:
        """To the runner that serves now."""

    def resolve(self, name: str) -> str:
        """The model that a request means; "" when there is none."""

    def refusal(self, name: str, deadline_s: Seconds, now: Seconds) -> errors.StokerError | None:
        """Why a job for this model ("" = any) cannot be taken now."""

    def eta_s(self, now: Seconds) -> Seconds:
        """Until a model takes jobs; 0 = it does, or nothing is known."""

    def proven(self, now: Seconds) -> None:
        """It finished a job."""

    def wanted(self, model: str, now: Seconds) -> None:
        """Somebody asks: the runner must not sleep."""


class JobDesk:
    """``tell`` reaches the listeners."""

    def __init__(
        self,
        config: Config,
        book: JobBook,
        clock: Clock,
        engines: Engines,
        tell: Tell,
        new_id: Callable[[], str],
    ) -> None:
        self._config, self._clock, self._new_id = config, clock, new_id
        self._engines, self._tell = engines, tell
        self.book = book
        self.queue = JobQueue(config, clock, self._act, self._announce)
        self._started: list[JobView] = []
        self._held = ""
        self._gone = life.RunnerGone("no runner yet", ordered=True)
        self.memory_refusal: Callable[[Ask], errors.StokerError | None] = lambda _ask: None

    def configure(self, config: Config) -> None:
        self._config = config
        self.book.configure(config.inference)
        self.queue.configure(config)

    def submit(
        self,
        ask: Ask,
        delivery: Delivery,
        owner: Owner,
        sink: StreamSink | None,
        accepted: Future[JobView],
        ended: Future[JobView] | None = None,
        standing: Standing = EVERYBODY,
    ) -> None:
        """``ended`` is of a caller who waits for the whole answer, which is interactive."""
        now = self._clock.monotonic_s()
        default = JobClass.NORMAL if ended is None else JobClass.INTERACTIVE
        job_class = granted(delivery.job_class, default, standing.highest)
        limit = delivery.deadline_s or self._config.inference.deadline_s
        deadline = Seconds(now + limit)
        refusal = self._refusal(ask, deadline, now) or self.book.crowded(owner)
        if job_class is None and delivery.job_class is not None:
            refusal = job_errors.class_not_allowed(delivery.job_class, standing.highest)
        if refusal is not None or job_class is None:
            if sink is not None:
                sink.close()
            accepted.set_exception(refusal)
            return
        ask = replace(ask, model=self._engines.resolve(ask.model))
        job = Job(
            self._new_id(), ask, delivery, owner, deadline, now, sink, accepted, ended, job_class
        )
        self.book.add(job)
        self._engines.wanted(ask.model, now)
        self.queue.submit(job, self._max_tokens(ask), standing)

    def _refusal(self, ask: Ask, deadline: Seconds, now: Seconds) -> errors.StokerError | None:
        refusal = self._engines.refusal(ask.model, deadline, now)
        if refusal is not None:
            return refusal
        return self.too_hot() or self.memory_refusal(ask)

    def too_hot(self) -> errors.StokerError | None:
        """Why nothing may be computed now."""
        if not self._held and self.queue.state.width:
            return None
        reason = self._held or "no thermal headroom is left"
        hint = "the device is too hot; see 'stokerctl thermal'"
        return errors.Throttled(f"cannot accept job: {reason}", hint=hint)

    def aside_refusal(self, uid: int, standing: Standing) -> errors.StokerError | None:
        """Why this user may have no vectors now."""
        wait = self.queue.rate_wait_s(uid, standing.quota)
        late = job_errors.refused("tokens_per_minute", wait) if wait else None
        return self.too_hot() or late

    def tick(self, now: Seconds) -> None:
        """Deadlines, slow readers, what is old enough to be forgotten."""
        self.queue.tick(now)
        for job in self.book:
            if not job.ended and now >= job.deadline_s:
                late = errors.DeadlineExceeded("cannot finish job: its deadline has passed")
                self.cancel(job, late)
            elif job.stalled_s:
                self._check_reader(job, now)
        self._forgotten(self.book.forget_old(now))

    def evict(self) -> int:
        """Results that can still be fetched go before their time; how many."""
        gone = self.book.evict()
        self._forgotten(gone)
        return len(gone)

    def _forgotten(self, jobs: list[str]) -> None:
        for job_id in jobs:
            self._tell(lambda listener, key=job_id: listener.job_forgotten(key))  # type: ignore[misc]

    def stream_ready(self, job: Job, *, hangup: bool, writable: bool, now: Seconds) -> None:
        """The poller found something on the job's stream."""
        if hangup:
            self.book.hang_up(job)
            self.cancel(job, errors.Cancelled("job cancelled: its stream was closed"))
        elif writable:
            self.book.drain(job, now)
            self._check_reader(job, now)

    def deltas(self, deltas: wire.Deltas) -> None:
        now = self._clock.monotonic_s()
        for delta in deltas.items:
            job = self.book.in_runner(delta.job)
            if job is None:  # cancelled while this was on its way
                self.queue.count_late(delta)
                continue
            self.book.feed(job, delta)
            self.queue.count(job.id, delta)
            if not job.streamed and delta.says:
                job.streamed_s = now
                self.queue.step(scheduler.Streamed(job.id))
            if delta.error is not None:
                self._end(job, {}, job_errors.of_runner(delta), by_runner=True)
            elif delta.done is not None:
                self._engines.proven(now)
                self._end(job, dict(delta.done), None, by_runner=True)
            else:
                self._check_reader(job, now)

    # What becomes of the runner (see ``model_swap.Jobs``).

    def running(self) -> int:
        """Jobs that the runner has."""
        return len(self.queue.state.running)

    def in_runner(self) -> frozenset[str]:
        """Their names there."""
        jobs = (self.book.get(job) for job in self.queue.state.running)
        return frozenset(job.wire_id for job in jobs if job is not None and not job.ended)

    def send(self, request: wire.Request) -> None:
        """To the runner that serves."""
        self._engines.send(request)

    def waiting(self) -> tuple[Waiting, ...]:
        """By arrival."""
        state = self.queue.state
        return tuple(Waiting(state.jobs[job].model) for job in state.queue)

    def drain(self, draining: bool) -> None:
        self.queue.step(scheduler.Drain(draining))

    def sweep(self, unservable: Callable[[str], errors.StokerError | None]) -> None:
        """End waiting jobs whose model will never come."""
        for job in self.book:
            error = unservable(job.ask.model) if job.state == "queued" else None
            if error is not None:
                self.cancel(job, error)

    def runner_ready(self, model: str) -> None:
        self.queue.step(scheduler.RunnerReady(model))

    def runner_gone(self, gone: life.RunnerGone) -> int:
        """Jobs of which nobody has seen a word wait again, others end; how many ended."""
        self._gone = gone
        before = len(self.queue.state.jobs)
        for job in self.book:
            job.paused, job.taken_back = False, 0  # the next runner knows nothing of it
            if job.state == "running" and not job.streamed:
                self._wait_again(job)
        self.queue.step(scheduler.RunnerLost(gone.ordered))
        return before - len(self.queue.state.jobs)

    def cancel(self, job: Job | None, error: errors.StokerError) -> bool:
        if job is None or job.ended:
            return False
        self._end(job, {}, error)
        return True

    def end_all(self, error: errors.StokerError) -> None:
        for job in self.book:
            self.cancel(job, error)

    def vanish(self, unique_name: str) -> None:
        """The caller left the bus: its jobs go with it."""
        for job in self.book.of_owner(unique_name):
            self.cancel(job, errors.Cancelled("job cancelled: its caller left the bus"))

    def hold(self, held: bool, reason: str) -> None:
        """Too hot: running jobs stand still, waiting ones wait, new ones are refused."""
        self._held = (reason or "too hot") if held else ""
        self.queue.step(scheduler.Hold(held))

    def known(self, job_id: str) -> Job:
        job = self.book.get(job_id)
        if job is None:
            raise errors.NotFound(f"cannot find job {job_id}: unknown or forgotten")
        return job

    def view(self, job: Job) -> JobView:
        wait = self.queue.eta_s(job.id)
        if job.state == "queued":
            wait = Seconds(wait + self._engines.eta_s(self._clock.monotonic_s()))
        return self.book.view(job, self.queue.position(job.id), wait)

    def _act(self, action: scheduler.Action) -> None:
        job = self.book.get(action.job)
        if job is None:
            return
        match action:
            case scheduler.Accept() if job.accepted is not None:
                job.accepted.set_result(self.view(job))
            case scheduler.Refuse(reason=reason, retry_after_s=wait) if job.accepted is not None:
                self.book.hang_up(job)
                self.book.drop(job)
                job.accepted.set_exception(job_errors.refused(reason, wait))
            case scheduler.Dispatch():
                self._dispatch(job)
            case scheduler.Pause():
                self._engines.send(wire.Pause(job.wire_id))
            case scheduler.Resume():
                self._engines.send(wire.Resume(job.wire_id))
            case scheduler.Revoke():
                self._engines.send(wire.Cancel(job.wire_id))
            case scheduler.Requeue():
                self._engines.send(wire.Cancel(job.wire_id))
                job.taken_back += 1
                self._wait_again(job)
            case scheduler.Lost(poison=poison):
                self._end(job, {}, job_errors.lost(self._gone, poison=poison))

    def _dispatch(self, job: Job) -> None:
        first = not job.started_s
        job.started_s = job.started_s or self._clock.monotonic_s()
        job.state = "running"
        most = self._max_tokens(job.ask)
        overflow = self._config.inference.overflow
        request = generate_request(job.wire_id, job.ask, most, job.owner.uid, overflow)
        try:
            self._engines.send(request)
        except errors.RequestTooLarge as error:
            self._end(job, {}, error)
            return
        if first:
            self._started.append(self.view(job))

    def _announce(self) -> None:
        """The runner hears of a job before its caller, the caller before the listeners:
        answering the call takes as long as a short prefill.
        """
        started, self._started = self._started, []
        for view in started:
            self._tell(lambda listener, view=view: listener.job_started(view))  # type: ignore[misc]

    def _wait_again(self, job: Job) -> None:
        self.book.wait_again(job)
        self.queue.begin_again(job.id)

    def _max_tokens(self, ask: Ask) -> int:
        limits = self._config.inference
        return min(ask.max_tokens or limits.max_tokens, limits.max_tokens_limit)

    def _check_reader(self, job: Job, now: Seconds) -> None:
        verdict = self.book.check_reader(job, now)
        if verdict == "slow":
            slow = errors.SlowConsumer("cannot stream: the reader took nothing for too long")
            self.cancel(job, slow)
            self.book.hang_up(job)
        elif verdict and not job.ended:
            job.paused = verdict == "pause"
            self.queue.step(scheduler.Stalled(job.id, job.paused))

    def _end(
        self,
        job: Job,
        done: dict[str, object],
        error: errors.StokerError | None,
        *,
        by_runner: bool = False,
    ) -> None:
        now = self._clock.monotonic_s()
        self.book.end(job, now, done, error)
        if by_runner:
            self.queue.step(scheduler.Ended(job.id))
        else:
            self.queue.withdraw(job.id, job.wire_id)
        view = self.view(job)
        # before its reader: who asks again at once must find the session's turn ended
        self._tell(lambda listener: listener.job_finished(view))
        self.book.last_line(job)
        self.book.answer(job, view)
