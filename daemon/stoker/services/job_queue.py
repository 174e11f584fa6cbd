"""The scheduler's state on the loop's thread: gives it the time and what each job costs.

It decides nothing. Tokens are counted as they come and told before the next event, so
that every decision sees all of them and no token costs a decision. Who hangs up pays what was
done: the runner's last word on a withdrawn job is counted too.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from stoker.config.schema import Config
from stoker.core import scheduler
from stoker.core.admission import rate_wait_s
from stoker.core.scheduler_state import Place, Rules, State
from stoker.events import runner as wire
from stoker.events.inference import Ask, JobClass, Quota, Standing, TokenTotals
from stoker.ports.system import Clock
from stoker.services.job_book import Job
from stoker.units import Bytes, Seconds

BYTES_PER_TOKEN: Final = 4  # of a prompt that nobody has counted yet
TICK_S: Final = Seconds(0.5)
MAX_LATE: Final = 1024  # withdrawn jobs whose last word is awaited


@dataclass(slots=True)
class _Meter:
    """One job's tokens: what the runner said, and what the scheduler was told of it."""

    estimate: int
    prefill: int = 0
    decode: int = 0
    cached: int = 0
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
        self._late: dict[str, scheduler.Spent] = {}  # by the name that the runner knows
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
        meter = self._meters[job.id] = _Meter(_prompt_chars(job.ask) // BYTES_PER_TOKEN + 1)
        self.step(
            scheduler.Submit(
                job.id,
                uid=job.owner.uid,
                job_class=job.job_class,
                quota=standing.quota,
                prompt_tokens=meter.estimate,
                max_tokens=max_tokens,
                size_bytes=text_bytes(job.ask),
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
        """Tokens of one delta of a job; the end of an answer says all of them again."""
        meter = self._meters.get(job)
        if meter is None:
            return
        meter.prefill += delta.e
        meter.decode += delta.n
        if delta.done is not None:
            usage = delta.done.get("usage")
            counts = usage if isinstance(usage, dict) else {}
            meter.cached = int(counts.get("cached_tokens", 0))
            read = counts.get("prompt_tokens", meter.prefill + meter.cached)
            meter.prefill = int(read) - meter.cached
            meter.decode = int(counts.get("completion_tokens", meter.decode))
        self._untold.add(job)

    def withdraw(self, job: str, wire_id: str) -> None:
        """It is cancelled. The runner, if it has the job, was at work on it until it hears so."""
        found = self.state.jobs.get(job)
        if found is not None and found.place is not Place.WAITING:
            if len(self._late) >= MAX_LATE:
                del self._late[next(iter(self._late))]
            self._late[wire_id] = scheduler.Spent(found.uid, found.quota, 0, lane=found.lane)
        self.step(scheduler.Withdraw(job))

    def count_late(self, delta: wire.Delta) -> None:
        """What the runner says of a job that was withdrawn; of all others nothing."""
        late = self._late.get(delta.job)
        if late is None:
            return
        if delta.done is not None or delta.error is not None:
            del self._late[delta.job]
        if delta.e or delta.n:
            self._add(delta.e, delta.n)
            self.step(replace(late, tokens=delta.e, written=delta.n))

    def begin_again(self, job: str) -> None:
        """Its sequence is gone: what it had is paid for, and counting starts anew."""
        self._tell(self._clock.monotonic_s())
        meter = self._meters.get(job)
        if meter is not None:
            self._add(meter.prefill, meter.decode)
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
        gone = [a.job for a in actions if isinstance(a, scheduler.Refuse | scheduler.Lost)]
        if isinstance(event, scheduler.Ended | scheduler.Withdraw):
            gone.append(event.job)
        if isinstance(event, scheduler.RunnerLost):
            self._late.clear()  # it says nothing any more
        for job in gone:
            meter = self._meters.pop(job, None)
            if meter is not None:
                self._add(meter.prefill, meter.decode, meter.cached)

    def _add(self, read: int, made: int, cached: int = 0) -> None:
        old = self.totals
        self.totals = TokenTotals(
            old.prompt + read + cached, old.cached + cached, old.completion + made
        )


def text_bytes(ask: Ask) -> Bytes:
    """What the texts of a request take in memory. One wide character makes a whole text two or
    four times as large: CPython stores each with the width of its widest (PEP 393).
    """
    return Bytes(sum(sys.getsizeof(text) for text in _texts(ask) if text))


def _texts(ask: Ask) -> Iterator[str]:
    yield from (ask.prompt, ask.model, ask.keep, *ask.stop)
    for message in ask.messages:
        yield from (message.role, message.content, message.tool_calls)
        yield from (message.tool_call_id, message.name)
    shape = ask.shape
    yield from (shape.schema, shape.grammar, shape.tools, shape.tool_choice)
    yield from (adapter.name for adapter in shape.adapters)


def _prompt_chars(ask: Ask) -> int:
    """What the model will read, before anybody has counted its tokens."""
    turns = sum(len(message.content) + len(message.tool_calls) for message in ask.messages)
    return len(ask.prompt) + len(ask.shape.tools) + turns


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
        queue_bytes=limits.queue_bytes,
    )
