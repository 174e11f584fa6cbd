"""The inference loop: callers' jobs in, the runner's tokens out, one thread.

It senses (poller), lets the scheduler and the supervisor decide, acts (runner link,
pipes) and reports (snapshots, listeners). Everything here runs on that one thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from stoker import errors
from stoker.config.schema import Config
from stoker.core import runner_life as life
from stoker.core import scheduler
from stoker.events import runner as wire
from stoker.events.inference import Ask, Delivery, JobClass, ModelInfo, Owner, Standing
from stoker.ports.doors import InferenceListener, InferenceSnapshot, JobView
from stoker.ports.runner import ModelFiles, RunnerLauncher
from stoker.ports.streams import Poller, Ready, StreamSinks
from stoker.ports.system import Clock, StateFile
from stoker.services import job_errors, model_list
from stoker.services.job_book import Job, JobBook
from stoker.services.job_queue import JobQueue, granted
from stoker.services.runner_link import Callbacks, RunnerLink, generate_request
from stoker.units import Seconds

_log = logging.getLogger(__name__)
LONGEST_WAIT_S = Seconds(1.0)  # so exactly are deadlines kept
LONGEST_REST_S = Seconds(2.0)  # without a job; the watchdog wants to see us come round
DRAIN_S = Seconds(2.0)  # for readers, when we stop
EVERYBODY = Standing()


class InferenceLoop:
    """Jobs, scheduler and runner together; ``run`` returns when everything has ended."""

    def __init__(
        self,
        config: Config,
        *,
        launcher: RunnerLauncher,
        poller: Poller,
        sinks: StreamSinks,
        files: ModelFiles,
        clock: Clock,
        memory: StateFile,
        threads: int,
        new_id: Callable[[], str],
    ) -> None:
        self._config, self._poller, self._sinks = config, poller, sinks
        self._files, self._clock, self._new_id = files, clock, new_id
        self._book = JobBook(config.inference, poller)
        self._queue = JobQueue(config, clock, self._act, self._announce)
        self._started: list[JobView] = []
        callbacks = Callbacks(self._runner_ready, self._runner_gone, self._deltas)
        self.link = RunnerLink(config, launcher, poller, memory, threads, callbacks)
        self.posted: deque[Callable[[], None]] = deque()
        self.listeners: list[InferenceListener] = []
        self.snapshot = InferenceSnapshot()
        self._stop_at_s: Seconds | None = None
        self._held = ""
        self._gone = life.RunnerGone("no runner yet", ordered=True)
        self.last_turn_s = clock.monotonic_s()

    def now_s(self) -> Seconds:
        return self._clock.monotonic_s()

    def post(self, work: Callable[[], None]) -> None:
        """Run ``work`` on the loop's thread, soon. The one method for other threads."""
        self.posted.append(work)
        self._poller.wake()

    def run(self) -> None:
        """Until ``begin_stop`` has been carried out to the end."""
        while not self._finished():
            self.turn(self._patience())
        for job in self._book:
            self._book.hang_up(job)

    def turn(self, patience_s: Seconds) -> None:
        """One round: wait, hear, do what was posted, look at the time, report."""
        for ready in self._poller.wait(patience_s):
            self._ready(ready)
        while self.posted:
            self.posted.popleft()()
        self._tick(self._clock.monotonic_s())

    def _patience(self) -> Seconds:
        if self.posted:
            return Seconds(0.0)
        now = self._clock.monotonic_s()
        longest = LONGEST_WAIT_S if len(self._book) else LONGEST_REST_S
        return Seconds(max(0.0, min(longest, self.link.next_wake_s() - now)))

    def _finished(self) -> bool:
        if self._stop_at_s is None or self.link.state.phase is not life.Phase.STOPPED:
            return False
        unread = any(job.sink is not None for job in self._book)
        return not unread or self._clock.monotonic_s() >= self._stop_at_s

    def _ready(self, ready: Ready) -> None:
        now = self._clock.monotonic_s()
        if self.link.ready(ready, now):
            return
        job = self._book.of_fd(ready.fd)
        if job is None:
            self._poller.unwatch(ready.fd)
        elif ready.hangup:
            self._book.hang_up(job)
            self.cancel(job, errors.Cancelled("job cancelled: its stream was closed"))
        elif ready.writable:
            self._book.drain(job, now)
            self._check_reader(job, now)

    def _tick(self, now: Seconds) -> None:
        self.link.tick(now, idle=not len(self._book))
        self._queue.tick(now)
        for job in self._book:
            if not job.ended and now >= job.deadline_s:
                late = errors.DeadlineExceeded("cannot finish job: its deadline has passed")
                self.cancel(job, late)
            elif job.stalled_s:
                self._check_reader(job, now)
        for job_id in self._book.forget_old(now):
            self._tell(lambda listener, key=job_id: listener.job_forgotten(key))  # type: ignore[misc]
        self._report()
        self.last_turn_s = now

    def submit(
        self,
        ask: Ask,
        delivery: Delivery,
        owner: Owner,
        fd: int,
        accepted: Future[JobView],
        ended: Future[JobView] | None = None,
        standing: Standing = EVERYBODY,
    ) -> None:
        """``ended`` is of a caller who waits for the whole answer, which is interactive."""
        now = self._clock.monotonic_s()
        sink = self._sinks.open(fd) if fd >= 0 else None
        default = JobClass.NORMAL if ended is None else JobClass.INTERACTIVE
        job_class = granted(delivery.job_class, default, standing.highest)
        refusal = self._refusal(ask) or self._book.crowded(owner)
        if job_class is None and delivery.job_class is not None:
            refusal = job_errors.class_not_allowed(delivery.job_class, standing.highest)
        if refusal is not None or job_class is None:
            if sink is not None:
                sink.close()
            accepted.set_exception(refusal)
            return
        limit = delivery.deadline_s or self._config.inference.deadline_s
        job = Job(
            self._new_id(), ask, delivery, owner, Seconds(now + limit), now, sink, accepted, ended,
            job_class,
        )  # fmt: skip
        self._book.add(job)
        self._queue.submit(job, self._max_tokens(ask), standing)

    def _refusal(self, ask: Ask) -> errors.StokerError | None:
        phase = self.link.state.phase
        if self._stop_at_s is not None or phase in (life.Phase.NO_MODEL, life.Phase.STOPPED):
            return self.link.unready()
        if self._held or self._queue.state.width == 0:
            hint = "the device is too hot; see 'stokerctl thermal'"
            reason = self._held or "no thermal headroom is left"
            return errors.Throttled(f"cannot accept job: {reason}", hint=hint)
        in_use = self.link.state.model or self.link.state.models[0]
        if ask.model and ask.model != in_use:
            return errors.ModelUnavailable(
                f"cannot answer with model {ask.model!r}: {in_use!r} is loaded",
                hint="leave model empty, or see 'stokerctl models'",
            )
        return None

    def _act(self, action: scheduler.Action) -> None:
        job = self._book.get(action.job)
        if job is None:
            return
        match action:
            case scheduler.Accept() if job.accepted is not None:
                job.accepted.set_result(self.view(job))
            case scheduler.Refuse(reason=reason, retry_after_s=wait) if job.accepted is not None:
                self._book.hang_up(job)
                self._book.drop(job)
                job.accepted.set_exception(job_errors.refused(reason, wait))
            case scheduler.Dispatch():
                self._dispatch(job)
            case scheduler.Pause():
                self.link.send(wire.Pause(job.wire_id))
            case scheduler.Resume():
                self.link.send(wire.Resume(job.wire_id))
            case scheduler.Revoke():
                self.link.send(wire.Cancel(job.wire_id))
            case scheduler.Requeue():
                self.link.send(wire.Cancel(job.wire_id))
                job.taken_back += 1
                self._wait_again(job)
            case scheduler.Lost(poison=poison):
                self._end(job, {}, job_errors.lost(self._gone, poison=poison))

    def _dispatch(self, job: Job) -> None:
        first = not job.started_s
        job.started_s = job.started_s or self._clock.monotonic_s()
        job.state = "running"
        self.link.send(generate_request(job.wire_id, job.ask, self._max_tokens(job.ask)))
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
        job.state = "queued"
        self._queue.begin_again(job.id)

    def _max_tokens(self, ask: Ask) -> int:
        limits = self._config.inference
        return min(ask.max_tokens or limits.max_tokens, limits.max_tokens_limit)

    def _deltas(self, deltas: wire.Deltas) -> None:
        now = self._clock.monotonic_s()
        for delta in deltas.items:
            job = self._book.in_runner(delta.job)
            if job is None:
                continue  # cancelled while this was on its way
            self._book.feed(job, delta)
            self._queue.count(job.id, delta)
            if not job.streamed and (delta.t or delta.r):
                job.streamed = True
                self._queue.step(scheduler.Streamed(job.id))
            if delta.error is not None:
                self._end(job, {}, job_errors.of_runner(delta), by_runner=True)
            elif delta.done is not None:
                self.link.step(life.Proven(now))
                self._end(job, dict(delta.done), None, by_runner=True)
            else:
                self._check_reader(job, now)

    def _check_reader(self, job: Job, now: Seconds) -> None:
        verdict = self._book.check_reader(job, now)
        if verdict == "slow":
            slow = errors.SlowConsumer("cannot stream: the reader took nothing for too long")
            self.cancel(job, slow)
            self._book.hang_up(job)
        elif verdict and not job.ended:
            job.paused = verdict == "pause"
            self._queue.step(scheduler.Stalled(job.id, job.paused))

    def cancel(self, job: Job | None, error: errors.StokerError) -> bool:
        if job is None or job.ended:
            return False
        self._end(job, {}, error)
        return True

    def _end(
        self,
        job: Job,
        done: dict[str, object],
        error: errors.StokerError | None,
        *,
        by_runner: bool = False,
    ) -> None:
        now = self.now_s()
        self._book.end(job, now, done, error)
        self._queue.step(scheduler.Ended(job.id) if by_runner else scheduler.Withdraw(job.id))
        view = self.view(job)
        self._tell(lambda listener: listener.job_finished(view))
        if job.result is not None:
            if error is not None:
                job.result.set_exception(error)
            else:
                job.result.set_result(view)

    def vanish(self, unique_name: str) -> None:
        """The caller left the bus: its jobs go with it."""
        for job in self._book.of_owner(unique_name):
            self.cancel(job, errors.Cancelled("job cancelled: its caller left the bus"))

    def hold(self, held: bool, reason: str) -> None:
        """Too hot: running jobs stand still, waiting ones wait, new ones are refused."""
        self._held = (reason or "too hot") if held else ""
        self._queue.step(scheduler.Hold(held))

    def headroom(self, fraction: float) -> None:
        """What heat leaves: background stands still first, at nothing everybody does."""
        self._queue.step(scheduler.Headroom(fraction))

    def reconfigure(self, config: Config) -> None:
        """Take over limits and restart rules; models and the runner's own need a restart."""
        self._config = config
        self._book.configure(config.inference)
        self.link.configure(config)
        self._queue.configure(config)

    def find(self, job_id: str) -> Job | None:
        return self._book.get(job_id)

    def models(self) -> tuple[ModelInfo, ...]:
        return model_list.models(self._config, self.link, self._files)

    def _runner_ready(self) -> None:
        self._queue.step(scheduler.RunnerReady())

    def _runner_gone(self, gone: life.RunnerGone) -> None:
        self._gone = gone
        for job in self._book:
            job.paused, job.taken_back = False, 0  # the next runner knows nothing of it
            if job.state == "running" and not job.streamed:
                self._wait_again(job)
        self._queue.step(scheduler.RunnerLost(gone.ordered))

    def begin_stop(self) -> None:
        now = self._clock.monotonic_s()
        self._stop_at_s = Seconds(now + DRAIN_S)
        for job in self._book:
            self.cancel(job, errors.Unavailable("cannot finish job: the service is stopping"))
        self.link.step(life.Stop(now))

    def _report(self) -> None:
        fresh = model_list.snapshot(self.link, self._queue.state, self._stop_at_s is not None)
        if fresh != self.snapshot:
            self.snapshot = fresh
            self._tell(lambda listener: listener.changed(fresh))

    def known(self, job_id: str) -> Job:
        job = self._book.get(job_id)
        if job is None:
            raise errors.NotFound(f"cannot find job {job_id}: unknown or forgotten")
        return job

    def view(self, job: Job) -> JobView:
        return self._book.view(job, self._queue.position(job.id), self._queue.eta_s(job.id))

    def _tell(self, call: Callable[[InferenceListener], None]) -> None:
        for listener in self.listeners:
            try:
                call(listener)
            except Exception:  # a door's fault must not stop the loop
                _log.exception("a listener failed")
