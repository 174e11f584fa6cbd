"""A world of jobs on a scheduler: every tick each decoding job gets one unit of cost.

A unit is one token written or four read, as the scheduler's own costs have it. The world
checks at each step what must always hold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stoker.core import scheduler
from stoker.core.scheduler import (
    Action,
    Charged,
    Dispatch,
    Ended,
    Event,
    Lost,
    Pause,
    Place,
    Refuse,
    Requeue,
    Resume,
    Rules,
    RunnerReady,
    State,
    Streamed,
    Submit,
    Tick,
)
from stoker.events.inference import JobClass, Quota
from stoker.units import Bytes, Seconds

READ_A_TICK = 4


@dataclass
class Work:
    """A job as it really is; the scheduler knows only an estimate of its prompt."""

    uid: int
    prompt: int
    answer: int
    read: int = 0
    written: int = 0
    began_s: float = -1.0
    ended_s: float = -1.0


class World:
    def __init__(self, rules: Rules, *, tick_s: float = 0.1, open_: bool = True) -> None:
        self.state = State(rules)
        self.now = 0.0
        self.tick_s = tick_s
        self.work: dict[str, Work] = {}
        self.had: dict[int, float] = {}  # cost that each user really had
        self.refused: list[Refuse] = []
        self.log: list[Action] = []
        if open_:
            self.tell(RunnerReady())

    def tell(self, event: Event) -> tuple[Action, ...]:
        self.state, actions = scheduler.step(self.state, event, Seconds(self.now))
        self.log += actions
        for action in actions:
            self._obey(action)
        self._check()
        return actions

    def submit(
        self,
        name: str,
        uid: int = 0,
        job_class: JobClass = JobClass.NORMAL,
        *,
        prompt: int = 0,
        answer: int = 10,
        quota: Quota | None = None,
        deadline_s: float = 0.0,
        max_tokens: int = 0,
    ) -> tuple[Action, ...]:
        self.work[name] = Work(uid, prompt, answer)
        ask = Submit(
            name, uid, job_class, quota or Quota(), prompt_tokens=prompt,
            max_tokens=max_tokens or answer, size_bytes=Bytes(4 * prompt),
            deadline_s=Seconds(deadline_s),
        )  # fmt: skip
        return self.tell(ask)

    def run(self, ticks: int) -> None:
        for _ in range(ticks):
            self.tick()

    def tick(self) -> None:
        self.now += self.tick_s
        for name in self.state.decoding:
            self._advance(name)
        self.tell(Tick())

    def place(self, name: str) -> Place:
        return self.state.jobs[name].place

    def _advance(self, name: str) -> None:
        if name not in self.state.decoding:
            return  # an end before it in this tick changed that
        work = self.work[name]
        self.had[work.uid] = self.had.get(work.uid, 0.0) + 1.0
        if work.read < work.prompt:
            work.read = min(work.read + READ_A_TICK, work.prompt)
            self.tell(Charged(name, READ_A_TICK, 0))
            return
        work.written += 1
        self.tell(Charged(name, 0, 1))
        if work.written == 1:
            self.tell(Streamed(name))
        if work.written >= work.answer:
            work.ended_s = self.now
            self.tell(Ended(name))

    def _obey(self, action: Action) -> None:
        work = self.work.get(action.job)
        if isinstance(action, Refuse):
            self.refused.append(action)
        elif work is not None and isinstance(action, Dispatch | Resume) and work.began_s < 0.0:
            work.began_s = self.now
        elif work is not None and isinstance(action, Requeue | Lost):
            assert isinstance(action, Lost) or work.written == 0, "text was seen already"
            self.work[action.job] = replace(work, read=0, written=0)

    def _check(self) -> None:
        state, rules = self.state, self.state.rules
        assert len(state.decoding) <= state.width
        assert len(state.running) <= rules.slots + rules.parked_slots
        for job in state.jobs.values():
            if job.quota.concurrent_jobs:
                own = [j for j in state.at(Place.DECODING) if j.uid == job.uid]
                assert len(own) <= job.quota.concurrent_jobs


def paused(actions: tuple[Action, ...]) -> list[str]:
    return [action.job for action in actions if isinstance(action, Pause)]


def started(actions: tuple[Action, ...]) -> list[str]:
    return [action.job for action in actions if isinstance(action, Dispatch | Resume)]


def jain(shares: list[float]) -> float:
    """1 = all equal, 1/n = one has everything (Jain, Chiu, Hawe 1984)."""
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))
