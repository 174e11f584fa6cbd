"""Which jobs decode, stand still or wait from now on: the scheduler's one decision.

Pure: ``settle`` gives the next state and the actions that lead there. Lower classes give
way, sequences are never overbooked, nobody is killed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stoker.core.scheduler_state import (
    Action,
    Dispatch,
    Job,
    Pause,
    Place,
    Requeue,
    Resume,
    State,
)
from stoker.events.inference import JobClass
from stoker.units import Seconds


def settle(state: State, now_s: Seconds) -> tuple[State, tuple[Action, ...]]:
    """Stop what may not go on, then start and resume in order while there is room."""
    board = _Board(state, now_s)
    if state.open:
        board.stop()
        while board.start_one():
            pass
        board.hush()
    return board.result()


class _Board:
    """The state while it is being changed."""

    def __init__(self, state: State, now_s: Seconds) -> None:
        self._state, self._now_s = state, now_s
        self._jobs = dict(state.jobs)
        self._lanes = list(state.lanes)
        self._actions: list[Action] = []
        self._reserved: dict[tuple[JobClass, int], float] = {}
        for lane, uids in self._busy().items():
            self._lanes[lane] = self._lanes[lane].enter(uids)
        for job in self._jobs.values():
            if job.place is not Place.WAITING:
                self._reserve(job, state.remaining_cost(job))

    def result(self) -> tuple[State, tuple[Action, ...]]:
        busy = self._busy()
        lanes = tuple(self._lanes[lane].leave(busy[lane]) for lane in JobClass)
        return replace(self._state, jobs=self._jobs, lanes=lanes), tuple(self._actions)

    def stop(self) -> None:
        """Whose reader is slow, what heat bars, and what is too many: the lowest first."""
        for job in self._decoding():
            if job.stalled or self._state.barred(job):
                self._park(job)
        decoding = sorted(self._decoding(), key=lambda job: (job.lane, job.order))
        for job in decoding[self._state.width :]:
            self._park(job)

    def hush(self) -> None:
        """Background out of the way of an interactive answer, though it has a slot: in one batch
        its prompt would hold up every word of it."""
        for job in self._decoding():
            if self._hushed(job):
                self._park(job)

    def _hushed(self, job: Job) -> bool:
        return (
            self._state.rules.background_waits
            and job.job_class is JobClass.BACKGROUND
            and self._state.effective(job, self._now_s) is JobClass.BACKGROUND
            and any(other.job_class is JobClass.INTERACTIVE for other in self._decoding())
        )

    def start_one(self) -> bool:
        """Give the next in order a place; False when nobody can have one."""
        decoding = self._decoding()
        full = len(decoding) >= self._state.width
        if self._state.width == 0 or (full and not any(job.yielding for job in decoding)):
            return False
        return any(self._place(job, decoding) for job in self._candidates())

    def _candidates(self) -> list[Job]:
        """Parked jobs before waiting ones of their class: they are in service already."""
        ready = [
            job
            for job in self._jobs.values()
            if job.place is not Place.DECODING
            and not job.stalled
            and not self._state.barred(job)
            and not self._hushed(job)
        ]
        return sorted(ready, key=self._key)

    def _key(self, job: Job) -> tuple[JobClass, bool, float, int]:
        lane = self._state.effective(job, self._now_s)
        waiting = job.place is Place.WAITING
        return lane, waiting, self._start_tag(lane, job.uid) if waiting else 0.0, job.order

    def _place(self, job: Job, decoding: Sequence[Job]) -> bool:
        own = [other for other in decoding if other.uid == job.uid]
        limit = job.quota.concurrent_jobs
        at_limit = bool(limit) and len(own) >= limit
        victim: Job | None = None
        if at_limit or len(decoding) >= self._state.width:
            victim = _victim(job, own if at_limit else decoding)
            if victim is None or (at_limit and len(own) > limit):
                return False
        if job.place is Place.WAITING and not self._free_sequence(job, victim):
            return False
        if victim is not None and self._jobs[victim.id].place is Place.DECODING:
            self._park(victim)
        self._start(job)
        return True

    def _free_sequence(self, job: Job, victim: Job | None) -> bool:
        """Room in the runner; if need be from a background job that nobody has seen yet."""
        rules = self._state.rules
        held = [other for other in self._jobs.values() if other.place is not Place.WAITING]
        if len(held) < rules.slots + rules.parked_slots:
            return True
        if job.job_class is JobClass.BACKGROUND:
            return False
        unseen = [other for other in held if other.yielding and not other.streamed]
        if victim is None:  # a place is free already; only a parked job need go
            unseen = [other for other in unseen if other.place is Place.PARKED]
        if not unseen:
            return False
        self._requeue(max(unseen, key=lambda other: (other is victim, other.order)))
        return True

    def _start(self, job: Job) -> None:
        lane = self._state.effective(job, self._now_s)
        if job.place is Place.WAITING:
            start = self._start_tag(lane, job.uid)
            self._lanes[lane] = self._lanes[lane].enter({job.uid}).serve(start)
            self._actions.append(Dispatch(job.id))
            self._reserve(replace(job, lane=lane), self._state.expected_cost(job))
        else:
            self._actions.append(Resume(job.id))
        waited = Seconds(job.waited_s + self._now_s - job.since_s)
        self._jobs[job.id] = replace(
            job, place=Place.DECODING, lane=lane, since_s=self._now_s, waited_s=waited
        )

    def _park(self, job: Job) -> None:
        self._actions.append(Pause(job.id))
        self._jobs[job.id] = self._stopped(job, Place.PARKED)

    def _requeue(self, job: Job) -> None:
        self._actions.append(Requeue(job.id))
        self._reserve(job, -self._state.remaining_cost(job))
        self._jobs[job.id] = begin_again(self._stopped(job, Place.WAITING))

    def _stopped(self, job: Job, place: Place) -> Job:
        if job.place is not Place.DECODING:
            return replace(job, place=place)  # it goes on waiting
        ran = Seconds(job.ran_s + self._now_s - job.since_s)
        return replace(job, place=place, since_s=self._now_s, ran_s=ran)

    def _decoding(self) -> list[Job]:
        return [job for job in self._jobs.values() if job.place is Place.DECODING]

    def _start_tag(self, lane: JobClass, uid: int) -> float:
        return self._lanes[lane].tag(uid) + self._reserved.get((lane, uid), 0.0)

    def _reserve(self, job: Job, cost: float) -> None:
        key = (job.lane, job.uid)
        self._reserved[key] = self._reserved.get(key, 0.0) + cost

    def _busy(self) -> dict[JobClass, set[int]]:
        """Who has work in which lane."""
        busy: dict[JobClass, set[int]] = {lane: set() for lane in JobClass}
        for job in self._jobs.values():
            busy[self._state.effective(job, self._now_s)].add(job.uid)
            if job.place is Place.PARKED:
                busy[job.lane].add(job.uid)  # its charges still go there
        return busy


def begin_again(job: Job) -> Job:
    """A job whose sequence is gone: what it had is paid for, all its work is to be done."""
    return replace(job, place=Place.WAITING, stalled=False, prefill=0, decode=0, ran_s=Seconds(0.0))


def _victim(job: Job, among: Sequence[Job]) -> Job | None:
    """The newest background job, for one of another class."""
    if job.job_class is JobClass.BACKGROUND:
        return None
    return max(
        (other for other in among if other.yielding), key=lambda other: other.order, default=None
    )
