"""One user of the soak: some apps in threads, each with a connection of its own, behaving as badly
as real ones do. Every word that comes back is compared with what that prompt must give.

Runs in a process of its own, as that user if we may; what it saw goes to its ``report``.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from bench.near_ties import Choice, shared, undecided
from stoker_client import Options, Stoker, StokerClientError, Stream

PATIENCE_S: Final = 90.0  # a stream that is silent for so long is lost
REPORT_EVERY_S: Final = 1.0
EXPECTED: Final = frozenset(
    {
        "busy", "quota-exceeded", "engine-failed", "cancelled", "model-loading", "unavailable",
        "deadline-exceeded", "slow-consumer", "preempted", "model-unavailable",
    }
)  # fmt: skip
"""What may end a job while runners are killed and quotas are met."""


class Report(Protocol):
    def send(self, obj: object, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """What one user does. ``texts``: prompt → greedy answer, for a real model; empty = echo.
    ``ties``: answer → its tokens, each with those that were nearly chosen."""

    address: str
    uid: int  # -1 = as we are
    number: int
    apps: int
    seed: int
    until_s: float  # time.monotonic
    texts: dict[str, str] = field(default_factory=dict)
    ties: dict[str, tuple[Choice, ...]] = field(default_factory=dict)
    tokens: int = 0


@dataclass(slots=True)
class Seen:
    """Counts, and the first few faults in words."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    report: Report | None = None

    def add(self, key: str, number: int = 1) -> None:
        with self.lock:
            self.counts[key] += number

    def tell(self, key: str = "") -> None:
        """Add to it, and report at once: who is killed next must have said what it has open."""
        with self.lock:
            if key:
                self.counts[key] += 1
            if self.report is not None:
                self.report.send((dict(self.counts), list(self.faults)))

    def fault(self, text: str) -> None:
        with self.lock:
            self.counts["faults"] += 1
            self.faults = [*self.faults, text][:5]


def main(plan: Plan, report: Report) -> None:
    """The process's whole life."""
    if plan.uid >= 0:
        os.setgroups([])
        os.setgid(plan.uid)
        os.setuid(plan.uid)
    seen = Seen(report=report)
    threads = [
        threading.Thread(target=_App(plan, index, seen).run, daemon=True)
        for index in range(plan.apps)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(REPORT_EVERY_S)
        seen.tell()


class _App:
    def __init__(self, plan: Plan, index: int, seen: Seen) -> None:
        self._plan = plan
        self._name = f"u{plan.number}a{index}"
        self._random = random.Random(f"{plan.seed} {self._name}")
        self._seen = seen
        self._serial = 0

    def run(self) -> None:
        try:
            self._live()
        except Exception as error:
            self._seen.fault(f"{self._name}: {type(error).__name__}: {error}")
            raise

    def _live(self) -> None:
        while time.monotonic() < self._plan.until_s:
            with Stoker(self._plan.address) as stoker:
                for _ in range(self._random.randint(1, 8)):
                    if time.monotonic() >= self._plan.until_s or not self._once(stoker):
                        break

    def _once(self, stoker: Stoker) -> bool:
        """One question; False when the app leaves the bus afterwards."""
        act = self._random.choices(
            (self._read, self._session, self._ask, self._hang_up, self._cancel, self._vanish),
            (50, 10, 10, 12, 12, 6),
        )[0]
        try:
            return act(stoker)
        except StokerClientError as error:
            self._ended(error)
            if error.retryable:
                wait_ms = error.details.get("retry_after_ms", 100)
                time.sleep(min(float(wait_ms) / 1000, 1.0))
            return True

    def _read(self, stoker: Stoker) -> bool:
        prompt, wanted, options = self._question()
        if self._random.random() < 0.05 and not self._plan.texts:  # a file, not a message
            options["system"] = "s" * (70 << 10)
        self._compare(stoker, stoker.stream(prompt, **options), wanted)
        return True

    def _session(self, stoker: Stoker) -> bool:
        """A kept conversation of a turn or two, deleted at the end: it must leave no row."""
        self._seen.tell("sessions begun")
        try:
            session = stoker.session(title=self._name)
        except StokerClientError:
            self._seen.tell("sessions gone")
            raise
        try:
            for _ in range(self._random.randint(1, 2)):
                prompt, wanted, options = self._question()
                free = bool(self._plan.texts)  # a model's answer depends on the turn before
                self._compare(stoker, session.stream(prompt, **options), "" if free else wanted)
        finally:
            self._surely(session.delete)
            self._seen.tell("sessions gone")
        return True

    def _ask(self, stoker: Stoker) -> bool:
        prompt, wanted, options = self._question()
        said = stoker.ask(prompt, **options)
        self._judge(said, wanted, whole=True)
        return True

    def _hang_up(self, stoker: Stoker) -> bool:
        """Reads a little, then closes the pipe."""
        self._part(stoker, lambda stream: stream.close())
        return True

    def _cancel(self, stoker: Stoker) -> bool:
        """Cancels and reads on: the typed last line must come."""
        prompt, wanted, options = self._question()
        stream = stoker.stream(prompt, **options)
        time.sleep(self._random.random() * 0.2)
        self._seen.add("cancels")
        threading.Thread(target=stoker._bus.cancel_job, args=(stream.job,), daemon=True).start()
        self._compare(stoker, stream, wanted)
        return True

    def _vanish(self, stoker: Stoker) -> bool:
        """Leaves the bus in the middle of an answer, with the pipe still open."""
        prompt, wanted, options = self._question()
        stream = stoker.stream(prompt, **options)
        time.sleep(self._random.random() * 0.2)
        self._seen.add("vanished")
        stoker.close()
        self._compare(stoker, stream, wanted)
        return False

    def _part(self, stoker: Stoker, leave: Callable[[Stream], None]) -> None:
        prompt, wanted, options = self._question()
        stream = stoker.stream(prompt, **options)
        said = ""
        for _ in range(self._random.randint(0, 5)):
            if not stream.wait(self._random.random()):
                break
            record = next(stream, None)
            if record is None:
                break
            said += record.text
        self._seen.add("hung up")
        leave(stream)
        self._judge(said, wanted, whole=False)

    def _question(self) -> tuple[str, str, Options]:
        """(prompt, what it must give, options)."""
        self._serial += 1
        classes = ("interactive", "normal", "normal", "background")
        options: Options = {"job_class": self._random.choice(classes), "temperature": 0.0}
        if self._plan.texts:
            prompt = self._random.choice(sorted(self._plan.texts))
            options |= {"max_tokens": self._plan.tokens, "reasoning": False}
            return prompt, self._plan.texts[prompt], options
        count = self._random.randint(1, 120)
        # unique words: a token of another stream is seen at once
        words = " ".join(f"{self._name}.{self._serial}.{word}" for word in range(count))
        options |= {"max_tokens": 200}
        pause_ms = self._random.choice((0, 1, 5))
        return (f"!slow {pause_ms} {words}" if pause_ms else words), words, options

    def _queued(self, stoker: Stoker, stream: Stream) -> bool:
        with contextlib.suppress(StokerClientError):  # it has left the bus, or the job is gone
            facts = stoker._bus.properties("org.stoker.Job1", path=stream.job)
            return facts["State"] == "queued" and int(facts["QueuePosition"]) > 0
        return False

    def _compare(self, stoker: Stoker, stream: Stream, wanted: str) -> None:
        """Reads to the end; a stream without its typed last line is a fault."""
        said = ""
        try:
            while True:
                if not stream.wait(PATIENCE_S):
                    if self._queued(stoker, stream):
                        continue  # a slow machine, not a lost job
                    self._seen.fault(f"{stream.job}: silent for {PATIENCE_S:.0f} s")
                    stream.close()
                    return
                record = next(stream)
                said += record.text if record.kind == "text" else ""
                if record.kind == "done":
                    break
        except StokerClientError as error:
            self._judge(said, wanted, whole=False)
            self._ended(error)
            return
        self._judge(said, wanted, whole=True)

    def _judge(self, said: str, wanted: str, *, whole: bool) -> None:
        self._seen.add("tokens", len(said.split()))
        if not wanted and self._plan.texts:  # depends on earlier turns
            self._seen.add("unjudged")
            return
        said, wanted = said.strip(), wanted.strip()
        right = said == wanted if whole else wanted.startswith(said)
        self._seen.add("whole" if whole else "parts")
        if right:
            return
        if undecided(said, self._plan.ties.get(wanted, ())):
            self._seen.add("diverged")
            return
        at = max(0, shared(said, wanted) - 20)
        self._seen.fault(
            f"{self._name}: said {said[at : at + 60]!r}, wanted {wanted[at : at + 60]!r}"
        )

    def _ended(self, error: StokerClientError) -> None:
        self._seen.add(error.code)
        if error.code not in EXPECTED or "ended in the middle" in error.message:
            self._seen.fault(f"{self._name}: {error.code}: {error.message}")

    def _surely(self, call: Callable[[], None]) -> None:
        for _ in range(20):
            try:
                call()
            except StokerClientError as error:
                if error.code == "not-found":
                    return
                time.sleep(0.1)
            else:
                return
        self._seen.fault(f"{self._name}: a conversation could not be deleted")
