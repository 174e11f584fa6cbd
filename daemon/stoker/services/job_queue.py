"""The scheduler's state on the loop's thread: gives it the time and what each job costs.

It decides nothing. Tokens are counted as they come and told before the next event, so
that every decision sees all of them and no token costs a decision.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from stoker.config.schema import Config
from stoker.core import scheduler
from stoker.core.admission import rate_wait_s
from stoker.core.scheduler_state import Rules, State
from stoker.events import runner as wire
from stoker.events.inference import Ask, JobClass, Quota, Standing, TokenTotals
from stoker.ports.system import Clock
from stoker.services.job_book import Job
from stoker.units import Bytes, Seconds

BYTES_PER_TOKEN: Final = 4  # of a prompt that nobody has counted yet
TICK_S: Final = Seconds(0.5)


@dataclass(slots=True)
class _Meter:
    """One job's tokens: what the runner said, and what the scheduler was told of it."""

    estimate: int
    prefill: int = 0
    decode: int = 0
    told: tuple[int, int] = (0, 0)


class JobQueue:
    """``act`` carries out one decision and may call back here; ``acted`` ends each event.

    Jobs are accepted after all else: telling the caller takes time that the runner can use.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        act: Callable[[scheduler.Action], None],
        acted: Callable[[], None] = lambda: None,
    ):
        self._clock, self._act, self._acted = clock, act, acted
        self.state = State(_rules(config, config.runner.slots, config.runner.parked_slots))
        self._meters: dict[str, _Meter] = {}
        self._untold: set[str] = set()
        self._events: deque[scheduler.Event] = deque()
        self._ticked_s = Seconds(0.0)
        self.totals = TokenTotals()

    def configure(self, config: Config) -> None:
        """New limits; the slots stay what the runner has."""
        old = self.state.rules
        self.state = replace(self.state, rules=_rules(config, old.slots, old.parked_slots))

    def resize(self, slots: int, parked_slots: int) -> None:
        """The runner has so many places from now on. While no job is in it."""
        rules = replace(self.state.rules, slots=slots, parked_slots=parked_slots)
        if rules != self.state.rules:
            self.state = replace(self.state, rules=rules)
            self.step(scheduler.Tick())

    def submit(self, job: Job, max_tokens: int, standing: Standing) -> None:
        size = text_bytes(job.ask)
        meter = self._meters[job.id] = _Meter(size // BYTES_PER_TOKEN + 1)
        self.step(
            scheduler.Submit(
                job.id,
                uid=job.owner.uid,
                job_class=job.job_class,
                quota=standing.quota,
                prompt_tokens=meter.estimate,
                max_tokens=max_tokens,
                size_bytes=size,
                deadline_s=job.deadline_s,
                model=job.ask.model,
            )
        )

    def step(self, event: scheduler.Event) -> None:
        """What is decided while acting on a decision comes after it."""
        self._events.append(event)
        if len(self._events) > 1:
            return
        while self._events:
            now = self._clock.monotonic_s()
            self._tell(now)
            self.state, actions = scheduler.step(self.state, self._events[0], now)
            self._forget(self._events[0], actions)
            for action in sorted(actions, key=lambda one: isinstance(one, scheduler.Accept)):
                self._act(action)
            self._acted()
            self._events.popleft()

    def tick(self, now: Seconds) -> None:
        """Tokens are charged before each decision and here, not one by one."""
        if now - self._ticked_s >= TICK_S:
            self._ticked_s = now
            self.step(scheduler.Tick())

    def count(self, job: str, delta: wire.Delta) -> None:
        """Tokens of one delta of a job; its last one holds the true numbers."""
        meter = self._meters.get(job)
        if meter is None:
            return
        if delta.p is not None:
            meter.prefill = delta.p[0]
        if delta.done is not None:
            usage = delta.done.get("usage")
            counts = usage if isinstance(usage, dict) else {}
            read = counts.get("prompt_tokens", meter.prefill)
            meter.prefill = int(read) - int(counts.get("cached_tokens", 0))
            meter.decode = int(counts.get("completion_tokens", meter.decode))
            self.totals = self.totals.plus(counts)
        elif delta.t or delta.r:
            meter.decode += 1
            meter.prefill = max(meter.prefill, meter.estimate)
        self._untold.add(job)

    def begin_again(self, job: str) -> None:
        """Its sequence is gone: what it had is paid for, and counting starts anew."""
        self._tell(self._clock.monotonic_s())
        meter = self._meters.get(job)
        if meter is not None:
            self._meters[job] = _Meter(meter.estimate)

    def rate_wait_s(self, uid: int, quota: Quota) -> Seconds:
        """Until this user's tokens a minute allow more; 0 = now."""
        self._tell(self._clock.monotonic_s())
        return rate_wait_s(self.state.buckets, uid, quota, self._clock.monotonic_s())

    def position(self, job: str) -> int:
        return scheduler.position(self.state, job, self._clock.monotonic_s())

    def eta_s(self, job: str) -> Seconds:
        return scheduler.wait_s(self.state, job, self._clock.monotonic_s())

    def _tell(self, now: Seconds) -> None:
        for job in self._untold:
            meter = self._meters.get(job)
            if meter is not None:
                more = (meter.prefill - meter.told[0], meter.decode - meter.told[1])
                meter.told = (meter.prefill, meter.decode)
                self.state, _ = scheduler.step(self.state, scheduler.Charged(job, *more), now)
        self._untold.clear()

    def _forget(self, event: scheduler.Event, actions: Iterable[scheduler.Action]) -> None:
        if isinstance(event, scheduler.Ended | scheduler.Withdraw):
            self._meters.pop(event.job, None)
        for action in actions:
            if isinstance(action, scheduler.Refuse | scheduler.Lost):
                self._meters.pop(action.job, None)


def text_bytes(ask: Ask) -> Bytes:
    """The size of what is asked; characters are near enough for a limit and an estimate."""
    return Bytes(len(ask.prompt) + sum(len(message.content) for message in ask.messages))


def granted(wanted: JobClass | None, default: JobClass, highest: JobClass) -> JobClass | None:
    """The class of a job; None = not for this user. A default gives way to what is allowed."""
    if wanted is None:
        return max(default, highest)
    return wanted if wanted >= highest else None


def _rules(config: Config, slots: int, parked_slots: int) -> Rules:
    limits = config.inference
    return Rules(
        slots,
        limits.queue_limit,
        parked_slots,
        limits.ageing_s,
        background_waits=limits.background_waits,
    )
