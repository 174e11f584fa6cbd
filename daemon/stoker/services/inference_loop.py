"""The inference loop: one thread that waits, hears, looks at the time and reports.

It senses (poller) and hands on: descriptors of runners to ``runner_bank``, streams and the
time to ``job_desk``, snapshots to listeners. Everything in those runs on this thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from stoker import errors
from stoker.config.schema import Config, ModelConfig
from stoker.core import runner_life as life
from stoker.core import scheduler, swap
from stoker.core.fit import Shortage
from stoker.events import runner as wire
from stoker.events.inference import Ask, Delivery, ModelInfo, Owner, Standing
from stoker.ports.doors import InferenceListener, InferenceSnapshot, JobView
from stoker.ports.runner import ModelFiles, RunnerLauncher
from stoker.ports.streams import Poller, Ready, StreamSinks
from stoker.ports.system import Clock, Memory, StateFile
from stoker.services import model_list
from stoker.services.adapter_change import AdapterChange
from stoker.services.fit_load import FitPlan
from stoker.services.job_book import JobBook
from stoker.services.job_desk import EVERYBODY, JobDesk
from stoker.services.measure_desk import MeasureDesk
from stoker.services.memory_hands import MemoryHands
from stoker.services.memory_watch import MemoryWatch
from stoker.services.model_swap import ModelSwap
from stoker.services.runner_bank import RunnerBank
from stoker.services.runner_link import Callbacks, RunnerLink, RunnerParts
from stoker.services.runner_memory import RunnerMemory
from stoker.services.runner_pace import RunnerPace
from stoker.services.runner_queries import OURSELVES, QUERY_TIMEOUT_S, Answered
from stoker.services.slot_watch import SlotWatch
from stoker.units import Bytes, Seconds

_log = logging.getLogger(__name__)
LONGEST_WAIT_S: Final = Seconds(1.0)  # so exactly are deadlines kept
LONGEST_REST_S: Final = Seconds(2.0)  # without a job; the watchdog wants to see us come round
DRAIN_S: Final = Seconds(2.0)  # for readers, when we stop


class InferenceLoop:
    """Jobs, scheduler and runners together; ``run`` returns when everything has ended."""

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
        device: Memory | None = None,
    ) -> None:
        """``device``: without it every model is loaded as configured, unwatched."""
        self._config, self._poller, self._sinks = config, poller, sinks
        self._files, self._clock, self._device = files, clock, device
        self.fit = FitPlan(device, self._runner_pid, files.size_bytes)
        parts = RunnerParts(
            launcher, poller, RunnerMemory(memory), threads, self.fit, self.fit.whole
        )
        callbacks = Callbacks(self._runner_ready, self._runner_gone, self._deltas, self._beat)
        self.runners = RunnerBank(config, parts, callbacks)
        book = JobBook(config.inference, poller)
        self.desk = JobDesk(config, book, clock, self.runners, self._tell, new_id)
        self.swap = ModelSwap(config, self.runners, self.desk, self._room)
        self.adapters = AdapterChange(self.runners, self._holds)
        self.slots = SlotWatch(self.desk, clock, self._ask)
        self.pace = RunnerPace(self._ask, self._configured_threads)
        self.measures = MeasureDesk(self.desk, self._ask_any, lambda: self.runners.swap.active)
        hands = MemoryHands(lambda: self.link, self.desk, clock, lambda: self.runners.swap.active)
        self.watch = MemoryWatch(config, device, self.fit, hands)
        self.desk.memory_refusal = self.watch.refusal
        self.posted: deque[Callable[[], None]] = deque()
        self.listeners: list[InferenceListener] = []
        self.snapshot = InferenceSnapshot()
        self._stop_at_s: Seconds | None = None
        self.last_turn_s = clock.monotonic_s()
        self._sampled = 0

    @property
    def link(self) -> RunnerLink:
        """The runner that serves."""
        return self.runners.serving

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
        for job in self.desk.book:
            self.desk.book.hang_up(job)

    def turn(self, patience_s: Seconds) -> None:
        """One round: wait, hear, do what was posted, look at the time, report."""
        for ready in self._poller.wait(patience_s):
            self._ready(ready)
        while self.posted:
            self.posted.popleft()()
        now = self._clock.monotonic_s()
        self.swap.tick(now)  # first: a new model's runner that died must not be started again
        self.runners.tick(now, busy=bool(self.desk.queue.state.jobs))
        if self.desk.queue.state.queue and self.link.state.phase is life.Phase.NO_MODEL:
            # new jobs are refused now: those that wait must not learn it at their deadline
            self.desk.sweep(lambda name: self.runners.hopeless(name, now))
        self.desk.tick(now)
        self.watch.tick(now)
        self.pace.tick(ready=self.link.state.phase is life.Phase.READY)
        self.report()
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
        """``fd``: the write end of the caller's pipe, ours from here on; -1 = none."""
        sink = self._sinks.open(fd) if fd >= 0 else None
        self.desk.submit(ask, delivery, owner, sink, accepted, ended, standing)

    def vanish(self, unique_name: str) -> None:
        """The caller left the bus: what it asked for goes with it."""
        self.desk.vanish(unique_name)
        self.runners.vanish(unique_name)

    def models(self) -> tuple[ModelInfo, ...]:
        return model_list.models(self._config, self.runners, self._files, self.fit)

    def headroom(self, fraction: float) -> None:
        """What heat leaves: background stands still first, at nothing everybody does."""
        self.desk.queue.step(scheduler.Headroom(fraction))
        self._cool()

    def hold(self, held: bool, reason: str) -> None:
        """Too hot for anything."""
        self.desk.hold(held, reason)
        self._cool()

    def _cool(self) -> None:
        """What cannot stand still ends: callers' vectors and tokens."""
        hot = self.desk.too_hot()
        if hot is not None:
            self.runners.drop_queries(hot)

    def reconfigure(self, config: Config) -> None:
        """Take over limits and restart rules; models and the runner's own need a restart."""
        self._config = config
        self.desk.configure(config)
        self.runners.configure(config)
        self.swap.configure(config)

    def begin_stop(self) -> None:
        now = self._clock.monotonic_s()
        self._stop_at_s = Seconds(now + DRAIN_S)
        self.desk.end_all(errors.Unavailable("cannot finish job: the service is stopping"))
        self.runners.stop(now)
        self.swap.abort()

    def _patience(self) -> Seconds:
        if self.posted:
            return Seconds(0.0)
        now = self._clock.monotonic_s()
        longest = LONGEST_WAIT_S if len(self.desk.book) else LONGEST_REST_S
        return Seconds(max(0.0, min(longest, self.runners.next_wake_s() - now)))

    def _finished(self) -> bool:
        if self._stop_at_s is None or not self.runners.stopped:
            return False
        unread = any(job.sink is not None for job in self.desk.book)
        return not unread or self._clock.monotonic_s() >= self._stop_at_s

    def _ready(self, ready: Ready) -> None:
        now = self._clock.monotonic_s()
        if self.runners.ready(ready, now):
            return
        job = self.desk.book.of_fd(ready.fd)
        if job is None:
            self._poller.unwatch(ready.fd)
        else:
            self.desk.stream_ready(job, hangup=ready.hangup, writable=ready.writable, now=now)

    # The runner that serves speaks.

    def _ask(
        self, make: Callable[[str], wire.Request], timeout_s: Seconds = QUERY_TIMEOUT_S
    ) -> Answered:
        """A question of our own to the runner that serves."""
        return self.link.query(make, self._clock.monotonic_s(), OURSELVES, timeout_s)

    def _ask_any(self, make: Callable[[str], wire.Request], timeout_s: Seconds) -> Answered:
        """The same; a model that sleeps wakes."""
        return self.runners.query(make, self._clock.monotonic_s(), OURSELVES, timeout_s)

    def _configured_threads(self) -> tuple[int, int]:
        threads = self.link.threads
        return threads, self._config.runner.threads_batch or threads

    def _runner_ready(self) -> None:
        self.pace.loaded()
        fitted = self.fit.of(self.link.state.model)
        places = fitted.plan if fitted else self._config.runner
        self.desk.queue.resize(places.slots, places.parked_slots)
        self.desk.runner_ready(self.link.state.model)
        self.desk.sweep(self.runners.unservable)  # it may be another model than before
        loaded = self.link.loaded
        if loaded is not None and loaded.saved:
            self._tell(lambda listener: listener.saved(loaded.saved))

    def _runner_gone(self, gone: life.RunnerGone) -> None:
        self.desk.runner_gone(gone)

    def _deltas(self, deltas: wire.Deltas) -> None:
        self.desk.deltas(deltas)

    def _beat(self, beat: wire.Beat) -> None:
        self._sampled = beat.sampled
        self.slots.beat(beat)

    def report(self) -> None:
        """Tell the listeners what changed."""
        stopping = self._stop_at_s is not None
        fresh = model_list.snapshot(
            self.runners,
            self.desk.queue.state,
            stopping,
            self.fit,
            self.watch.level.word,
            self.desk.queue.totals,
            self._sampled,
            self.pace.threads,
        )
        if fresh != self.snapshot:
            self.snapshot = fresh
            self._tell(lambda listener: listener.changed(fresh))

    def _runner_pid(self) -> int:
        process = self.link.process
        return process.pid if process is not None else 0

    def _room(self, model: ModelConfig) -> bool:
        """A first guess; the load path's plan has the last word."""
        if self._device is None:
            return False
        size = Bytes(self._files.size_bytes(model.path))
        return swap.holds_both(size, Bytes(self._device.facts().available_bytes))

    def shortage(self, file_bytes: int, adapter_bytes: int) -> Shortage | None:
        """See ``FitPlan.shortage``: of a model that would take the place of the one in use."""
        serving = self.link.state.model if self.link.process is not None else ""
        return self.fit.shortage(file_bytes, adapter_bytes, self._config, serving)

    def _holds(self, paths: list[str]) -> bool:
        """Memory holds these files beside what runs."""
        if self._device is None:
            return True
        sizes = sum(max(self._files.size_bytes(path), 0) for path in paths)
        return swap.holds_both(Bytes(sizes), Bytes(self._device.facts().available_bytes))

    def _tell(self, call: Callable[[InferenceListener], None]) -> None:
        for listener in self.listeners:
            try:
                call(listener)
            except Exception:  # a door's fault must not stop the loop
                _log.exception("a listener failed")
