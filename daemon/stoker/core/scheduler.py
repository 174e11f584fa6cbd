"""Which job goes to the runner next, who must wait, stand still or is refused.

Pure: ``step(state, event, now) -> (state, actions)``. Classes go one before the other,
users of a class share by cost, who waits long rises, quotas bound each user, heat narrows
everybody. A job that lost its runner before its first token is queued again once, at its
old place. ``admission`` and ``placement`` decide; here events become state.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from stoker.core import admission, placement
from stoker.core.scheduler_state import (
    Accept,
    Action,
    Charged,
    Dispatch,
    Drain,
    Ended,
    Event,
    Headroom,
    Heat,
    Hold,
    Job,
    Lost,
    Pace,
    Pause,
    Place,
    Refuse,
    Requeue,
    Resume,
    Revoke,
    Rules,
    RunnerLost,
    RunnerReady,
    Spent,
    Stalled,
    State,
    Streamed,
    Submit,
    Tick,
    Withdraw,
)
from stoker.core.waiting_line import position, wait_s
from stoker.units import Seconds

__all__ = [
    "Accept", "Action", "Charged", "Dispatch", "Drain", "Ended", "Event", "Headroom", "Heat",
    "Hold", "Job", "Lost", "Pause", "Place", "Refuse", "Requeue", "Resume", "Revoke", "Rules",
    "RunnerLost", "RunnerReady", "Spent", "Stalled", "State", "Streamed", "Submit", "Tick",
    "Withdraw", "position", "step", "wait_s",
]  # fmt: skip

MAX_LOSSES: Final = 2  # a job that lost two runners is not tried a third time
SMOOTHING: Final = 0.2  # weight of the newest job in the means
WARM_BELOW: Final = 0.5
HOT_BELOW: Final = 0.2
COOLER_BY: Final = 0.1  # so much more headroom before a job that stood still goes on
SHORTEST_RUN_S: Final = 0.05  # shorter ones teach nothing about speed

Result = tuple[State, tuple[Action, ...]]


def step(state: State, event: Event, now_s: Seconds) -> Result:
    """The next state and what to do; unknown jobs change nothing."""
    match event:
        case Submit():
            return _submit(state, event, now_s)
        case RunnerLost(ordered=ordered):
            return _lose(state, ordered, now_s)
        case RunnerReady() | Drain() | Hold() | Headroom() | Tick():
            return placement.settle(_told(state, event), now_s)
        case Spent():
            return _spend(state, event, now_s), ()
    job = state.jobs.get(event.job)
    if job is None:
        return state, ()
    in_runner = job.place is not Place.WAITING
    match event:
        case Charged(prefill=prefill, decode=decode):
            return _charge(state, job, prefill, decode, now_s), ()
        case Streamed() if in_runner:
            return _put(state, replace(job, streamed=True)), ()
        case Stalled(stalled=stalled) if in_runner and stalled != job.stalled:
            return placement.settle(_stall(state, job, stalled, now_s), now_s)
        case Ended() if in_runner:
            learnt = replace(state, pace=_learn(state, job, now_s))
            return placement.settle(_forget(learnt, job), now_s)
        case Withdraw():
            after, actions = placement.settle(_forget(state, job), now_s)
            return after, (Revoke(job.id), *actions) if in_runner else actions
    return state, ()


def _told(state: State, event: RunnerReady | Drain | Hold | Headroom | Tick) -> State:
    """What concerns every job."""
    match event:
        case RunnerReady(model=model):
            return replace(state, open=True, model=model)
        case Drain(draining=draining):
            return replace(state, draining=draining)
        case Hold(held=held):
            return replace(state, held=held)
        case Headroom(fraction=fraction):
            return replace(state, heat=_heat(state.heat, fraction))
        case Tick():
            return state


def _submit(state: State, event: Submit, now_s: Seconds) -> Result:
    if event.job in state.jobs:
        return state, ()
    taken = admission.admit(state, event, now_s)
    if isinstance(taken, Refuse):
        return state, (taken,)
    after, actions = placement.settle(taken, now_s)
    return after, (Accept(event.job), *actions)


def _charge(state: State, job: Job, prefill: int, decode: int, now_s: Seconds) -> State:
    """To the user's account in the lane in which the job runs, and to its bucket."""
    lanes = list(state.lanes)
    lanes[job.lane] = lanes[job.lane].charge(job.uid, state.cost(prefill, decode))
    buckets = admission.pay(state.buckets, job, prefill + decode, now_s)
    charged = replace(job, prefill=job.prefill + prefill, decode=job.decode + decode)
    return _put(replace(state, lanes=tuple(lanes), buckets=buckets), charged)


def _spend(state: State, event: Spent, now_s: Seconds) -> State:
    lanes = list(state.lanes)
    if event.lane is not None:
        cost = state.cost(event.tokens, event.written)
        lanes[event.lane] = lanes[event.lane].charge(event.uid, cost)
    buckets = admission.spend(state.buckets, event, now_s)
    return replace(state, lanes=tuple(lanes), buckets=buckets)


def _stall(state: State, job: Job, stalled: bool, now_s: Seconds) -> State:
    """The reader's own time is no waiting: it does not age a job."""
    if job.place is Place.DECODING:
        return _put(state, replace(job, stalled=stalled))
    waited = Seconds(job.waited_s + (now_s - job.since_s if stalled else 0.0))
    return _put(state, replace(job, stalled=stalled, since_s=now_s, waited_s=waited))


def _heat(heat: Heat, headroom: float) -> Heat:
    """With some hysteresis: a job must not start and stop with every reading."""
    if headroom <= 0.0:
        return Heat.STOP
    if headroom < HOT_BELOW + (COOLER_BY if heat >= Heat.HOT else 0.0):
        return Heat.HOT
    if headroom < WARM_BELOW + (COOLER_BY if heat >= Heat.WARM else 0.0):
        return Heat.WARM
    return Heat.COOL


def _learn(state: State, job: Job, now_s: Seconds) -> Pace:
    pace = state.pace
    ran = job.ran_s + (now_s - job.since_s if job.place is Place.DECODING else 0.0)
    cost = state.cost(job.prefill, job.decode)
    rate = pace.cost_per_s
    if ran >= SHORTEST_RUN_S and cost > 0.0:
        rate = _average(rate, cost / ran) if rate else cost / ran
    return Pace(Seconds(_average(pace.run_s, ran)), _average(pace.answer_tokens, job.decode), rate)


def _average(old: float, new: float) -> float:
    return old + SMOOTHING * (new - old)


def _put(state: State, job: Job) -> State:
    return replace(state, jobs={**state.jobs, job.id: job})


def _forget(state: State, job: Job) -> State:
    return replace(state, jobs={key: other for key, other in state.jobs.items() if key != job.id})


def _lose(state: State, ordered: bool, now_s: Seconds) -> Result:
    jobs: dict[str, Job] = {}
    lost: list[Action] = []
    for job in state.jobs.values():
        if job.place is Place.WAITING:
            jobs[job.id] = job
            continue
        blamed = not ordered and job.place is Place.DECODING
        losses = job.losses + (1 if blamed else 0)
        poison = losses >= MAX_LOSSES
        if job.streamed or poison:
            lost.append(Lost(job.id, ordered, poison))
        else:
            again = placement.begin_again(replace(job, losses=losses))
            since = again.since_s if job.place is Place.PARKED else now_s
            jobs[job.id] = replace(again, since_s=since)
    return placement.settle(replace(state, open=False, jobs=jobs), now_s)[0], tuple(lost)
