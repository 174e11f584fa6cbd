"""Who will be served when, as far as one can tell: queue positions and waiting times.

Pure. Plays the fair order forward with expected costs; it foresees no ageing and no new
arrivals, so a wait is an estimate and a position may grow when a higher class arrives.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final

from stoker.core.scheduler_state import Job, Place, State
from stoker.events.inference import JobClass
from stoker.units import Seconds

LEAST_WAIT_S: Final = Seconds(1.0)


def position(state: State, job: str, now_s: Seconds) -> int:
    """1 = next to run; 0 = not waiting."""
    known = state.jobs.get(job)
    if known is None or known.place is not Place.WAITING:
        return 0
    waiting = (item.id for item in _line(state, now_s) if item.place is Place.WAITING)
    return next(number for number, item in enumerate(waiting, 1) if item == job)


def wait_s(state: State, job: str, now_s: Seconds) -> Seconds:
    """Estimated time until the job runs (again); 0 when it does or is not known."""
    known = state.jobs.get(job)
    if known is None or known.place is Place.DECODING:
        return Seconds(0.0)
    return next((start for item, start in _starts(state, now_s) if item.id == job), Seconds(0.0))


def next_of_user_s(state: State, uid: int, now_s: Seconds) -> Seconds:
    """Estimated time until one of the user's waiting jobs leaves the queue."""
    starts = _starts(state, now_s)
    wait = next((s for j, s in starts if j.uid == uid and j.place is Place.WAITING), 0.0)
    return Seconds(max(LEAST_WAIT_S, wait))


def next_place_s(state: State) -> Seconds:
    """When a place in the queue should be free, from the mean run time."""
    return Seconds(max(LEAST_WAIT_S, state.pace.run_s / max(state.rules.slots, 1)))


def _run_s(state: State, job: Job) -> float:
    """How long the job still decodes, beside others as usual."""
    if state.pace.cost_per_s <= 0.0:
        return state.pace.run_s
    return state.remaining_cost(job) / state.pace.cost_per_s


def _starts(state: State, now_s: Seconds) -> Iterator[tuple[Job, Seconds]]:
    """(job, seconds until it starts) in the expected order, for all that stand still."""
    slots = max(state.width, 1) if state.open else state.rules.slots
    decoding = state.at(Place.DECODING)
    yielding = [_run_s(state, job) for job in decoding if job.yielding]
    ends = [_run_s(state, job) for job in decoding if not job.yielding]
    ends = heapq.nlargest(slots, ends + [0.0] * slots)
    heapq.heapify(ends)
    for job in _line(state, now_s):
        if job.job_class is JobClass.BACKGROUND and yielding:
            for run in yielding:  # they gave way to all before, but not to this one
                heapq.heapreplace(ends, ends[0] + run)
            yielding = []
        start = ends[0]
        heapq.heapreplace(ends, start + _run_s(state, job))
        yield job, Seconds(start)


def _line(state: State, now_s: Seconds) -> Iterator[Job]:
    """Waiting and parked jobs in the expected order."""
    for lane in JobClass:
        here = [
            job
            for job in state.jobs.values()
            if job.place is not Place.DECODING and state.effective(job, now_s) is lane
        ]
        here.sort(key=lambda job: job.order)
        yield from (job for job in here if job.place is Place.PARKED)
        yield from _fair(state, lane, [job for job in here if job.place is Place.WAITING])


def _fair(state: State, lane: JobClass, waiting: list[Job]) -> Iterator[Job]:
    """The user with the lowest start tag, again and again."""
    own: dict[int, list[Job]] = {}
    for job in waiting:
        own.setdefault(job.uid, []).append(job)
    tags = {uid: state.lanes[lane].tag(uid) for uid in own}
    for job in state.jobs.values():
        if job.place is not Place.WAITING and job.lane is lane and job.uid in tags:
            tags[job.uid] += state.remaining_cost(job)
    heads = [(tags[uid], jobs[0].order, uid, 0) for uid, jobs in own.items()]
    heapq.heapify(heads)
    while heads:
        tag, _, uid, at = heads[0]
        job, jobs = own[uid][at], own[uid]
        yield job
        if at + 1 < len(jobs):
            after = tag + state.expected_cost(job)
            heapq.heapreplace(heads, (after, jobs[at + 1].order, uid, at + 1))
        else:
            heapq.heappop(heads)
