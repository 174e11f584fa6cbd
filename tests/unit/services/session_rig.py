"""The session service turned by hand: a store in memory, inference that the test answers."""

from __future__ import annotations

import itertools
import os
from concurrent.futures import Future
from typing import Any, TypeVar

from tests.fakes.doors import FakeAuthority
from tests.fakes.sessions import MemorySessionStore
from tests.fakes.system import FakeClock

from stoker import errors
from stoker.config.schema import Config, SessionsConfig
from stoker.events.inference import Ask, Delivery, ModelInfo, Owner
from stoker.events.sessions import Settings
from stoker.ports.doors import InferenceListener, JobView
from stoker.services.sessions import SessionService
from stoker.units import Seconds

T = TypeVar("T")
ALICE, BOB, ROOT = Owner(":1.1", 1000), Owner(":1.2", 1001), Owner(":1.3", 0)


class HandInference:
    """Jobs that the test accepts and ends."""

    def __init__(self) -> None:
        self.asks: list[Ask] = []
        self.given: list[tuple[Delivery, Owner]] = []
        self.cancelled: list[str] = []
        self.forgotten: list[tuple[int, str]] = []
        self.context_tokens = 0
        self.futures: list[Future[JobView]] = []
        self._listener = InferenceListener()

    def listen(self, listener: InferenceListener) -> None:
        self._listener = listener

    def models(self) -> tuple[ModelInfo, ...]:
        return (ModelInfo("tiny", "/m", 1, "ready", context_tokens=self.context_tokens),)

    def submit(self, ask: Ask, delivery: Delivery, owner: Owner, fd: int) -> Future[JobView]:
        if fd >= 0:
            os.close(fd)
        self.asks.append(ask)
        self.given.append((delivery, owner))
        self.futures.append(Future())
        return self.futures[-1]

    def cancel(self, job: str, reason: str) -> Future[bool]:
        self.cancelled.append(job)
        return Future()

    def forget(self, uid: int, conversation: str) -> None:
        self.forgotten.append((uid, conversation))

    def tell_saved(self, saved: dict[str, object]) -> None:
        self._listener.saved(saved)

    def accept(self) -> str:
        job = f"job{len(self.futures)}"
        self.futures[-1].set_result(JobView(job, ALICE, "queued"))
        return job

    def refuse(self, error: errors.StokerError) -> None:
        self.futures[-1].set_exception(error)

    def end(self, job: str, text: str = "answer", code: str = "") -> None:
        state = "failed" if code else "done"
        view = JobView(job, ALICE, state, text=text, error_code=code, completion_tokens=3)
        self._listener.job_finished(view)


class Rig:
    def __init__(self, **sessions: Any) -> None:
        self.config = Config(sessions=SessionsConfig(**sessions))
        self.store, self.inference, self.clock = MemorySessionStore(), HandInference(), FakeClock()
        self.wall_s, self.asleep_s = 1e9, Seconds(0.0)
        self.gone: list[str] = []
        ids = itertools.count(1)
        self.service = SessionService(
            self.config,
            store=self.store,
            inference=self.inference,  # type: ignore[arg-type]
            authority=FakeAuthority(frozenset({0})),
            clock=self.clock,
            wall_s=lambda: self.wall_s,
            new_id=lambda: f"s{next(ids)}",
            asleep_s=lambda: self.asleep_s,
        )
        self.service.listen(self.gone.append)

    def turn(self, times: int = 4) -> None:
        for _ in range(times):
            self.service.turn(Seconds(0.001))

    def get(self, future: Future[T]) -> T:
        self.turn()
        return future.result(0)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.wall_s += seconds
        self.turn()

    def create(self, owner: Owner = ALICE, **settings: Any) -> str:
        return self.get(self.service.create(owner, Settings(**settings))).id

    def append(self, session: str, text: str = "why?", owner: Owner = ALICE) -> Future[JobView]:
        future = self.service.append(session, owner, Ask(prompt=text), Delivery(), -1)
        self.turn()
        return future

    def talk(self, session: str, *questions: str) -> None:
        for question in questions:
            future = self.append(session, question)
            job = self.inference.accept()
            assert self.get(future).id == job
            self.inference.end(job, f"re {question}")
            self.turn()

    def states(self, session: str) -> list[tuple[str, str]]:
        found = self.get(self.service.turns(session, ALICE, 0, 100))
        return [(turn.state, turn.answer) for turn in found]
