"""Which job goes to the runner next, who must wait and who is refused.

Pure: ``step(state, event) -> (state, actions)``. First form: one queue in order of
arrival, ``slots`` jobs in the runner at once (it decodes them together), a bounded
queue that refuses early instead of growing. A job that lost its runner before its
first token is queued again once, at the front.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from stoker.units import Seconds

MAX_LOSSES: Final = 2  # a job that lost two runners is not tried a third time
SMOOTHING: Final = 0.2  # weight of the newest job in the mean run time


@dataclass(frozen=True, slots=True)
class Submit:
    job: str


@dataclass(frozen=True, slots=True)
class Streamed:
    """The first output of a job left: it can no longer be repeated unseen."""

    job: str


@dataclass(frozen=True, slots=True)
class Ended:
    job: str
    ran_s: Seconds


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Cancelled, expired or its caller is gone."""

    job: str


@dataclass(frozen=True, slots=True)
class RunnerReady:
    pass


@dataclass(frozen=True, slots=True)
class RunnerLost:
    ordered: bool  # we replaced it: no fault of any job


@dataclass(frozen=True, slots=True)
class Hold:
    """Too hot: nothing new starts until released."""

    held: bool


Event = Submit | Streamed | Ended | Withdraw | RunnerReady | RunnerLost | Hold


@dataclass(frozen=True, slots=True)
class Accept:
    job: str


@dataclass(frozen=True, slots=True)
class Refuse:
    job: str
    retry_after_s: Seconds


@dataclass(frozen=True, slots=True)
class Dispatch:
    job: str


@dataclass(frozen=True, slots=True)
class Revoke:
    """Tell the runner to drop a job that it has."""

    job: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The job's runner is gone and it cannot be repeated."""

    job: str
    ordered: bool
    poison: bool  # it was in every one of MAX_LOSSES crashes


Action = Accept | Refuse | Dispatch | Revoke | Lost


@dataclass(frozen=True, slots=True)
class State:
    slots: int
    queue_limit: int
    open: bool = False  # a runner is ready
    held: bool = False  # the thermal loop says stop
    queue: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    streamed: frozenset[str] = frozenset()
    losses: Mapping[str, int] = field(default_factory=dict)
    mean_run_s: Seconds = Seconds(5.0)


Result = tuple[State, tuple[Action, ...]]


def step(state: State, event: Event) -> Result:
    """The next state and what to do; unknown jobs change nothing."""
    match event:
        case Submit(job=job):
            if job in state.queue or job in state.running:
                return state, ()
            if len(state.queue) >= state.queue_limit:
                return state, (Refuse(job, estimated_wait_s(state)),)
            return _fill(replace(state, queue=(*state.queue, job)), (Accept(job),))
        case Streamed(job=job) if job in state.running:
            return replace(state, streamed=state.streamed | {job}), ()
        case Ended(job=job, ran_s=ran) if job in state.running:
            mean = Seconds(state.mean_run_s + SMOOTHING * (ran - state.mean_run_s))
            return _fill(replace(_forget(state, job), mean_run_s=mean))
        case Withdraw(job=job) if job in state.running:
            return _fill(_forget(state, job), (Revoke(job),))
        case Withdraw(job=job):
            return _forget(state, job), ()
        case RunnerReady():
            return _fill(replace(state, open=True))
        case Hold(held=held):
            return _fill(replace(state, held=held))
        case RunnerLost(ordered=ordered):
            return _lose(state, ordered)
    return state, ()


def position(state: State, job: str) -> int:
    """1 = next to run; 0 = not waiting."""
    return state.queue.index(job) + 1 if job in state.queue else 0


def estimated_wait_s(state: State) -> Seconds:
    """When a place in the queue should be free, from the mean run time."""
    return Seconds(max(1.0, state.mean_run_s / max(state.slots, 1)))


def _fill(state: State, actions: tuple[Action, ...] = ()) -> Result:
    free = state.slots - len(state.running) if state.open and not state.held else 0
    going = state.queue[: max(free, 0)]
    filled = replace(state, queue=state.queue[len(going) :], running=(*state.running, *going))
    return filled, (*actions, *(Dispatch(job) for job in going))


def _forget(state: State, job: str) -> State:
    return replace(
        state,
        queue=tuple(j for j in state.queue if j != job),
        running=tuple(j for j in state.running if j != job),
        streamed=state.streamed - {job},
        losses={j: n for j, n in state.losses.items() if j != job},
    )


def _lose(state: State, ordered: bool) -> Result:
    losses = dict(state.losses)
    again: list[str] = []
    lost: list[Action] = []
    for job in state.running:
        losses[job] = losses.get(job, 0) + (0 if ordered else 1)
        poison = losses[job] >= MAX_LOSSES
        if job in state.streamed or poison:
            lost.append(Lost(job, ordered, poison))
            del losses[job]
        else:
            again.append(job)
    gone = {action.job for action in lost if isinstance(action, Lost)}
    after = replace(
        state, open=False, running=(), queue=(*again, *state.queue),
        streamed=state.streamed - gone, losses=losses,
    )  # fmt: skip
    return after, tuple(lost)
