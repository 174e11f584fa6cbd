"""What the scheduler knows, hears and says: its values, without any decision.

``Rules`` come from configuration, ``Job`` is one accepted job, ``State`` is everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto
from typing import Final

from stoker.core.fair_lanes import Lane
from stoker.events.inference import JobClass, Quota
from stoker.units import Bytes, Seconds

FIRST_RUN_S: Final = Seconds(5.0)  # how long a job is thought to run before one has ended
FIRST_ANSWER_TOKENS: Final = 128.0


@dataclass(frozen=True, slots=True)
class Submit:
    """``prompt_tokens`` is an estimate; ``deadline_s`` a moment, 0 = none; ``model`` "" = any."""

    job: str
    uid: int = 0
    job_class: JobClass = JobClass.NORMAL
    quota: Quota = field(default_factory=Quota)
    prompt_tokens: int = 0
    max_tokens: int = 512
    size_bytes: Bytes = Bytes(0)
    deadline_s: Seconds = Seconds(0.0)
    model: str = ""


@dataclass(frozen=True, slots=True)
class Streamed:
    """The first output of a job left: it can no longer be repeated unseen."""

    job: str


@dataclass(frozen=True, slots=True)
class Charged:
    """Tokens that a job had since the last word; negative = an estimate was too high."""

    job: str
    prefill: int
    decode: int


@dataclass(frozen=True, slots=True)
class Stalled:
    """Its reader takes nothing: it cannot run until it does."""

    job: str
    stalled: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """By itself, in the runner."""

    job: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Cancelled, expired or its caller is gone."""

    job: str


@dataclass(frozen=True, slots=True)
class RunnerReady:
    """``model``: what it has; jobs for another one wait on."""

    model: str = ""


@dataclass(frozen=True, slots=True)
class Drain:
    """Nothing new goes to the runner, what it has goes on: it will be replaced."""

    draining: bool


@dataclass(frozen=True, slots=True)
class RunnerLost:
    ordered: bool  # we replaced it: no fault of any job


@dataclass(frozen=True, slots=True)
class Hold:
    """Too hot: nothing runs until released."""

    held: bool


@dataclass(frozen=True, slots=True)
class Headroom:
    """Of the thermal loop, 0..1."""

    fraction: float


@dataclass(frozen=True, slots=True)
class Spent:
    """``tokens`` read and ``written`` for a user outside of any job that is here: vectors, and what
    the runner did for a job that was withdrawn, which also counts in its ``lane``. Negative = an
    estimate was too high.
    """

    uid: int
    quota: Quota
    tokens: int
    written: int = 0
    lane: JobClass | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed: who waited long enough rises."""


Event = (
    Submit | Streamed | Charged | Stalled | Ended | Withdraw | RunnerReady | RunnerLost | Drain
    | Hold | Headroom | Spent | Tick
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Accept:
    job: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """``reason``: queue, queue_bytes, deadline, or the field of Quota that is used up."""

    job: str
    reason: str
    retry_after_s: Seconds


@dataclass(frozen=True, slots=True)
class Dispatch:
    job: str


@dataclass(frozen=True, slots=True)
class Pause:
    """The job keeps its sequence in the runner and stands still."""

    job: str


@dataclass(frozen=True, slots=True)
class Resume:
    job: str


@dataclass(frozen=True, slots=True)
class Requeue:
    """Take the job out of the runner; nobody saw anything of it and it is queued again."""

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


Action = Accept | Refuse | Dispatch | Pause | Resume | Requeue | Revoke | Lost


@dataclass(frozen=True, slots=True)
class Rules:
    """What configuration decides."""

    slots: int  # decoded together
    queue_limit: int
    parked_slots: int = 0  # sequences beyond ``slots``, for jobs that stand still
    ageing_s: Seconds = Seconds(60.0)  # so long a wait lifts a job by one class
    prefill_cost: float = 0.25  # of one token read, beside one token written
    decode_cost: float = 1.0
    background_waits: bool = False  # also with a slot of its own, while interactive is answered
    queue_bytes: Bytes = Bytes(0)  # of all jobs, those in the runner too; 0 = no limit


class Place(Enum):
    WAITING = auto()
    DECODING = auto()
    PARKED = auto()  # in the runner, standing still


class Heat(IntEnum):
    """What headroom leaves us."""

    COOL = 0
    WARM = 1  # background stands still
    HOT = 2  # and only one job is decoded
    STOP = 3  # and nothing at all


@dataclass(frozen=True, slots=True)
class Job:
    """One accepted job. ``order`` is that of arrival and survives a requeue."""

    id: str
    uid: int
    job_class: JobClass
    quota: Quota
    order: int
    prompt_tokens: int
    max_tokens: int
    size_bytes: Bytes
    since_s: Seconds  # it is where it is
    model: str = ""  # the only one that may answer it; "" = any
    place: Place = Place.WAITING
    lane: JobClass = JobClass.NORMAL  # the class it was started in; counts while in the runner
    waited_s: Seconds = Seconds(0.0)  # in earlier waits
    ran_s: Seconds = Seconds(0.0)  # in earlier runs
    prefill: int = 0  # tokens charged so far
    decode: int = 0
    streamed: bool = False
    stalled: bool = False
    losses: int = 0

    @property
    def yielding(self) -> bool:
        """It gives way to other classes (until it has aged)."""
        return self.job_class is JobClass.BACKGROUND and self.lane is JobClass.BACKGROUND


@dataclass(frozen=True, slots=True)
class Bucket:
    """Tokens a minute of one user; below zero it is in debt for jobs already taken."""

    level: float
    at_s: Seconds
    per_minute: int


@dataclass(frozen=True, slots=True)
class Pace:
    """What finished jobs taught: moving averages."""

    run_s: Seconds = FIRST_RUN_S
    answer_tokens: float = FIRST_ANSWER_TOKENS
    cost_per_s: float = 0.0  # of one job beside the others; 0 = not known yet


@dataclass(frozen=True, slots=True)
class State:
    rules: Rules
    open: bool = False  # a runner is ready
    model: str = ""  # of the runner
    draining: bool = False  # no waiting job starts
    held: bool = False  # the thermal loop says stop
    heat: Heat = Heat.COOL
    jobs: Mapping[str, Job] = field(default_factory=dict)
    lanes: tuple[Lane, ...] = (Lane(), Lane(), Lane())  # one a class
    buckets: Mapping[int, Bucket] = field(default_factory=dict)
    pace: Pace = field(default_factory=Pace)
    arrivals: int = 0

    def at(self, place: Place) -> tuple[Job, ...]:
        return tuple(job for job in self.jobs.values() if job.place is place)

    @property
    def queue(self) -> tuple[str, ...]:
        """Ids of those that wait, by arrival; who is next is ``waiting_line``'s to say."""
        waiting = sorted(self.at(Place.WAITING), key=lambda job: job.order)
        return tuple(job.id for job in waiting)

    @property
    def running(self) -> tuple[str, ...]:
        """Ids of those the runner has, standing still or not."""
        return tuple(job.id for job in self.jobs.values() if job.place is not Place.WAITING)

    @property
    def decoding(self) -> tuple[str, ...]:
        return tuple(job.id for job in self.at(Place.DECODING))

    @property
    def phase(self) -> str:
        """What the runner does with those: prefill while one has not said a word, else decode;
        "" = nothing."""
        now = self.at(Place.DECODING)
        if not now:
            return ""
        return "decode" if all(job.streamed for job in now) else "prefill"

    @property
    def width(self) -> int:
        """How many may be decoded together now."""
        if self.held or self.heat is Heat.STOP:
            return 0
        return 1 if self.heat is Heat.HOT else self.rules.slots

    def barred(self, job: Job) -> bool:
        """Not now: another model is loaded or will be, or it is too warm for this class."""
        if job.place is Place.WAITING and (self.draining or not self.fits(job)):
            return True
        return self.heat >= Heat.WARM and job.job_class is JobClass.BACKGROUND

    def fits(self, job: Job) -> bool:
        """The loaded model is one that may answer it."""
        return not job.model or job.model == self.model

    def effective(self, job: Job, now_s: Seconds) -> JobClass:
        """The class it counts as: one higher for each ``ageing_s`` that it waited."""
        if job.place is Place.DECODING:
            return job.lane
        waited = job.waited_s + (0.0 if job.stalled else now_s - job.since_s)
        lifted = int(waited / self.rules.ageing_s)
        return JobClass(max(job.job_class - lifted, JobClass.INTERACTIVE))

    def expected_cost(self, job: Job) -> float:
        """All of the job's cost, as far as one can tell beforehand."""
        answer = max(min(float(job.max_tokens), self.pace.answer_tokens), job.decode + 1.0)
        prompt = max(job.prompt_tokens, job.prefill)
        return prompt * self.rules.prefill_cost + answer * self.rules.decode_cost

    def cost(self, prefill: int, decode: int) -> float:
        return prefill * self.rules.prefill_cost + decode * self.rules.decode_cost

    def remaining_cost(self, job: Job) -> float:
        return max(self.expected_cost(job) - self.cost(job.prefill, job.decode), 0.0)
