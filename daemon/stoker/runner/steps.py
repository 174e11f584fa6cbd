"""Jobs and slots: who decodes, who waits, what one step did to each of them.

Holds the queue in order of acceptance. Gives out one list of deltas for each step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from stoker.errors import (
    Busy,
    Cancelled,
    DeadlineExceeded,
    EngineFailed,
    GrammarInvalid,
    InvalidRequest,
    Preempted,
    StokerError,
)
from stoker.events.runner import Delta, Generate, Load
from stoker.runner import overflowing, planning
from stoker.runner.adapter_lanes import AdapterLanes
from stoker.runner.cache import SequenceCache, public
from stoker.runner.engine import Engine, Facts, Outcome, Run
from stoker.runner.intake import Intake
from stoker.runner.jobs import Job
from stoker.runner.warming import warm_up

MAX_WAITING: Final = 256


Chosen = tuple[Job, int, bool]


class Steps:
    """``out`` gets what each step brought. Only ``doom`` may be called from other threads."""

    def __init__(
        self,
        engine: Engine,
        out: Callable[[list[Delta]], None],
        clock: Callable[[], float],
        cache: SequenceCache | None = None,
    ) -> None:
        self._engine = engine
        self._out = out
        self._clock = clock
        self._costs = planning.Costs()
        self._facts: Facts | None = None
        self._target_ms = 200.0
        self._active: dict[str, Job] = {}  # in order of acceptance
        self._waiting: deque[Job] = deque()
        self._cache = cache or SequenceCache(engine, clock)
        self._doomed: set[str] = set()
        self._stepping: frozenset[str] = frozenset()
        self._intake = Intake(engine)
        self._running: list[Job] | None = None  # None = the set of jobs changed
        self._names: frozenset[str] = frozenset()
        self._lanes = AdapterLanes()
        self._deadlines = False
        self._behind = 0  # waiting jobs that have a slot once their saved states are read
        self._read = self.sampled = self.count = 0  # prompt tokens, tokens made, steps

    @property
    def active(self) -> int:
        return len(self._active)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def busy(self) -> bool:
        """There is something that a step could do, or a deadline to watch."""
        return bool(self._runnable() or (self._waiting and self._free))

    @property
    def _free(self) -> bool:
        """One more job may have a slot."""
        return self._facts is not None and len(self._active) < self._facts.slots

    @property
    def steady(self) -> bool:
        """The next step is a usual one: every job decodes and none is about to come in."""
        admits = self._free and len(self._waiting) > self._behind
        return not admits and all(job.decoding for job in self._runnable())

    @property
    def fetching(self) -> bool:
        """Reading saved states is all there is to do."""
        return bool(self._behind) and not self._runnable()

    def begin(self, request: Load, facts: Facts) -> None:
        """A context is there. A short warm-up teaches the cost of a token."""
        self._target_ms = float(request.prefill_target_ms)
        self._costs = planning.Costs()
        elapsed_ms, count = warm_up(self._engine, facts)
        self._costs.learn(elapsed_ms=elapsed_ms, decoding=0, prefill_tokens=count)
        self._cache.begin(request, facts, public(self._engine, request.shared_prefixes))
        self._facts = facts

    def leave(self) -> None:
        """The context goes away; no job may be left."""
        self._facts = None
        self._cache.forget_all()

    def forget(self, scope: str, keep: str) -> int:
        """What is kept of a scope or of one conversation goes, with that of its running jobs."""
        for job in (*self._active.values(), *self._waiting):
            request = job.request
            if request.scope == scope and keep in ("", request.keep):
                job.shareable = False
        return self._cache.forget(scope, keep)

    def accept(self, request: Generate) -> None:
        try:
            if self._find(request.job):
                raise InvalidRequest(f"cannot generate: job {request.job!r} exists already")
            if len(self._waiting) >= MAX_WAITING:
                raise Busy(f"cannot generate: {MAX_WAITING} jobs are waiting")
            if request.job in self._doomed:  # its tokens would be made for nobody
                raise Cancelled("cannot generate: it was cancelled")
            job = self._intake.job(request, self._clock())
        except StokerError as error:
            self._out([Delta(request.job, error=error.record())])
            return
        self._deadlines = self._deadlines or bool(job.deadline_s)
        self._waiting.append(job)

    def cancel(self, job: str) -> None:
        self._doomed.discard(job)
        self._end(job, Cancelled("cannot finish the job: it was cancelled"))

    def pause(self, job: str, *, paused: bool) -> None:
        found = self._find(job)
        if found:
            found.paused = paused
            self._running = None

    def drop_all(self) -> None:
        """The model goes away under the jobs."""
        for job in [*self._active, *(item.id for item in self._waiting)]:
            self._end(job, Preempted("cannot finish the job: the model is unloaded"))

    def doom(self, job: str) -> None:
        """Any thread: the job will be cancelled; ends the running step if it has no other."""
        self._doomed.add(job)
        stepping = self._stepping
        if stepping and stepping <= self._doomed:
            self._engine.raise_abort()

    def work(self) -> None:
        """Admits jobs and runs one step, if there is anything to do."""
        if self._deadlines:
            self._expire()
        while self._free and (job := self._next()) is not None:
            self._waiting.remove(job)
            self._admit(job)
        running = self._runnable()
        self._behind = len(self._waiting) if self._free else 0
        if running and self._facts:
            self._step(running, self._facts)

    @property
    def cache(self) -> SequenceCache:
        return self._cache

    def counters(self) -> Mapping[str, object]:
        return {
            "prefix_cache": self._cache.counters(),
            "steps": self.count,
            "prompt_tokens": self._read,
            "completion_tokens": self.sampled,
            "prefill_ms_per_token": round(self._costs.prefill_ms, 4),
            "decode_ms_per_step": round(self._costs.decode_ms, 4),
            "active": self.active,
            "waiting": self.waiting,
            "jobs": [*self._active, *(job.id for job in self._waiting)],
        }

    def _next(self) -> Job | None:
        """The oldest job that need not wait for the disk."""
        running = self._active.values()
        return next((job for job in self._waiting if self._cache.ready(job, running)), None)

    def _admit(self, job: Job) -> None:
        started_s = self._clock()
        seq, cached = self._cache.claim(job, self._active.values())
        job.start(seq, started_s, cached=cached)
        try:
            self._engine.open(seq, job.request.sampling, job.seed)
            if job.shaping is not None:
                job.shaping.begin(self._engine, job)
        except StokerError as error:
            self._engine.close(seq)
            self._cache.give_back(job, sound=True)
            self._out([job.failure(error)])
            return
        self._active[job.id] = job
        self._running = None

    def _runnable(self) -> list[Job]:
        """Active jobs that are not paused; made anew only when the set has changed."""
        if self._running is None:
            self._running = [job for job in self._active.values() if not job.paused]
            self._names = frozenset(job.id for job in self._running)
        return self._running

    def _step(self, running: list[Job], facts: Facts) -> None:
        chosen = self._choose(self._lanes.pick(running), facts)
        names = self._names if len(chosen) == len(running) else frozenset(c[0].id for c in chosen)
        runs = [job.run(count, logits=logits) for job, count, logits in chosen]
        started_s = self._clock()
        try:
            outcome = self._run(names, runs)
        except EngineFailed as error:
            for job, _, _ in chosen:
                self._end(job.id, error, sound=False)
            return
        self.count += 1
        if outcome is Outcome.DONE:
            now_s = self._clock()
            decoding = sum(job.decoding for job, _, _ in chosen)
            filled = sum(count for _, count, _ in chosen) - decoding
            self._costs.learn(
                elapsed_ms=(now_s - started_s) * 1e3, decoding=decoding, prefill_tokens=filled
            )
            self._read += filled
            self._collect(chosen)
        elif outcome is Outcome.FULL:
            if self._cache.make_room():
                return  # nothing was changed: the same step again
            newest = max((job for job, _, _ in chosen), key=lambda job: job.number)
            self._end(newest.id, Busy("cannot go on: the key-value cache is full"))
        else:
            for job, _, _ in chosen:
                self._recover(job)

    def _choose(self, running: list[Job], facts: Facts) -> list[Chosen]:
        """Jobs of the next batch with their token counts and whether they want logits."""
        filling = [job for job in running if not job.decoding]
        if not filling and len(running) <= facts.batch_tokens:
            return [(job, 1, True) for job in running]  # the usual step, kept short
        decoding = [job.seq for job in running if job.decoding]
        limit = facts.batch_tokens
        parts = planning.compose(
            decoding,
            [planning.Waiting(job.seq, job.remaining) for job in filling],
            limit=limit,
            budget=self._costs.budget(
                decoding=len(decoding), target_ms=self._target_ms, limit=limit
            ),
        )
        by_seq = {job.seq: job for job in running}
        return [(by_seq[part.seq], part.count, part.logits) for part in parts]

    def _run(self, jobs: frozenset[str], runs: list[Run]) -> Outcome:
        self._engine.clear_abort()
        self._stepping = jobs
        try:
            if jobs <= self._doomed:  # the cancel came while we were composing
                return Outcome.ABORTED
            self._engine.adapt(self._lanes.key)
            return self._engine.step(runs)
        finally:
            self._stepping = frozenset()

    def _collect(self, chosen: list[Chosen]) -> None:
        items: list[Delta] = []
        for job, count, logits in chosen:
            job.evaluated += count
            delta = self._sample(job) if logits else job.progress(self._clock())
            if delta is not None:
                items.append(delta)
                if delta.done is not None or delta.error is not None:
                    self._release(job)
                    continue
            if job.full and job.shifts:
                self._shift(job)
        if items:
            self._out(items)

    def _sample(self, job: Job) -> Delta:
        try:
            token = self._engine.sample(job.seq)
            self.sampled += 1
            if job.shaping is not None:
                return job.shaping.taken(self._engine, job, token, self._clock())
            return job.take(token, self._engine.piece(token), self._clock())
        except (EngineFailed, GrammarInvalid) as error:
            return job.failure(error)

    def _shift(self, job: Job) -> None:
        """A full context, and the job wants to go on without some of its tokens."""
        if self._facts is None:
            return
        keep, discard = overflowing.shift(self._facts.context_tokens, job.prompt)
        if self._engine.shift(job.seq, keep, discard):
            job.shift(keep, discard)
        else:
            self._end(job.id, EngineFailed("cannot go on: the context cannot be shifted"))

    def _recover(self, job: Job) -> None:
        """After an aborted step: what the engine kept, less one token to sample from."""
        kept = self._engine.length(job.seq)
        if kept >= len(job.tokens):
            kept = len(job.tokens) - 1
            if not self._engine.truncate(job.seq, kept):
                self._end(job.id, EngineFailed("cannot go on: the step cannot be repeated"))
                return
        job.evaluated = kept

    def _expire(self) -> None:
        now_s = self._clock()
        late = [
            job.id
            for job in (*self._active.values(), *self._waiting)
            if job.deadline_s and now_s >= job.deadline_s
        ]
        for job in late:
            self._end(job, DeadlineExceeded("cannot finish the job: its deadline has passed"))

    def _find(self, job: str) -> Job | None:
        return self._active.get(job) or next((x for x in self._waiting if x.id == job), None)

    def _end(self, job: str, error: StokerError, *, sound: bool = True) -> None:
        """Frees what the job holds and says why; an unknown job has ended already."""
        found = self._find(job)
        if found is None:
            return
        if job in self._active:
            self._release(found, sound=sound)
        else:
            self._waiting.remove(found)
            self._cache.dismiss(found)
        self._out([found.failure(error)])

    def _release(self, job: Job, *, sound: bool = True) -> None:
        del self._active[job.id]
        self._running = None
        self._engine.close(job.seq)
        self._cache.give_back(job, sound=sound)
