"""The session service turned by hand: a fake store, inference that the test answers."""

from __future__ import annotations

import itertools
import json
import os
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from tests.fakes.doors import FakeAuthority
from tests.fakes.sessions import MemorySessionStore
from tests.fakes.system import FakeClock

from stoker import errors
from stoker.config.schema import Config, SessionsConfig
from stoker.events.inference import Ask, Delivery, ModelInfo, Owner
from stoker.events.sessions import Session, Settings
from stoker.ports.doors import InferenceListener, JobView
from stoker.services.sessions import SessionService
from stoker.units import Bytes, Seconds

T = TypeVar("T")
ALICE, BOB, ROOT = Owner(":1.1", 1000), Owner(":1.2", 1001), Owner(":1.3", 0)


class HandInference:
    """Jobs that the test accepts and ends."""

    def __init__(self) -> None:
        self.asks: list[Ask] = []
        self.cancelled: list[str] = []
        self.context_tokens = 0
        self._futures: list[Future[JobView]] = []
        self._listener = InferenceListener()

    def listen(self, listener: InferenceListener) -> None:
        self._listener = listener

    def models(self) -> tuple[ModelInfo, ...]:
        return (ModelInfo("tiny", "/m", 1, "ready", context_tokens=self.context_tokens),)

    def submit(self, ask: Ask, delivery: Delivery, owner: Owner, fd: int) -> Future[JobView]:
        if fd >= 0:
            os.close(fd)
        self.asks.append(ask)
        self._futures.append(Future())
        return self._futures[-1]

    def cancel(self, job: str, reason: str) -> Future[bool]:
        self.cancelled.append(job)
        return Future()

    def accept(self) -> str:
        job = f"job{len(self._futures)}"
        self._futures[-1].set_result(JobView(job, ALICE, "queued"))
        return job

    def refuse(self, error: errors.StokerError) -> None:
        self._futures[-1].set_exception(error)

    def end(self, job: str, text: str = "answer", code: str = "") -> None:
        state = "failed" if code else "done"
        view = JobView(job, ALICE, state, text=text, error_code=code, completion_tokens=3)
        self._listener.job_finished(view)


class Rig:
    def __init__(self, **sessions: Any) -> None:
        self.config = Config(sessions=SessionsConfig(**sessions))
        self.store, self.inference, self.clock = MemorySessionStore(), HandInference(), FakeClock()
        self.wall_s = 1e9
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


def test_each_question_brings_the_turns_before_it() -> None:
    rig = Rig()
    session = rig.create(system="brief", window_turns=2)
    rig.talk(session, "one", "two", "three", "four")
    said = [(message.role, message.content) for message in rig.inference.asks[-1].messages]
    assert said == [
        ("system", "brief"), ("user", "two"), ("assistant", "re two"), ("user", "three"),
        ("assistant", "re three"), ("user", "four"),
    ]  # fmt: skip
    assert rig.inference.asks[-1].prompt == ""
    turns = rig.get(rig.service.turns(session, ALICE, 0, 10))
    assert [turn.omitted_turns for turn in turns] == [0, 0, 0, 1]


def test_the_streams_first_line_tells_what_was_left_out() -> None:
    rig = Rig()
    session = rig.create(window_turns=1)
    rig.talk(session, "one", "two")
    reader, writer = os.pipe()
    rig.service.append(session, ALICE, Ask(prompt="three"), Delivery(), writer)
    rig.turn()
    with os.fdopen(reader) as stream:
        told = json.loads(stream.read())
    assert told == {"session": {"turn": 3, "sent_turns": 1, "omitted_turns": 1}}


def test_bare_text_has_no_such_line_and_a_refused_question_closes_its_pipe() -> None:
    rig = Rig()
    session = rig.create()
    for key in (session, "nonsense"):
        reader, writer = os.pipe()
        rig.service.append(key, ALICE, Ask(prompt="x"), Delivery(format="text"), writer)
        rig.turn()
        with os.fdopen(reader) as stream:
            assert stream.read() == ""


def test_the_window_follows_the_models_context_unless_policy_says_error() -> None:
    for overflow, sent in (("drop-oldest", 0), ("error", 1)):
        rig = Rig(overflow=overflow)
        rig.inference.context_tokens = 64
        session = rig.create()
        rig.talk(session, "x" * 200)
        rig.append(session, "short")
        assert len(rig.inference.asks[-1].messages) == 1 + 2 * sent


def test_a_second_question_waits_for_the_first_ones_end() -> None:
    rig = Rig()
    session = rig.create()
    rig.append(session)
    with pytest.raises(errors.Busy):
        rig.append(session).result(0)
    rig.inference.end(rig.inference.accept())
    rig.turn()
    rig.talk(session, "now")
    assert [state for state, _ in rig.states(session)] == ["done", "done"]


def test_an_end_that_comes_before_the_acceptance_is_heard_is_not_lost() -> None:
    rig = Rig()
    session = rig.create()
    future = rig.append(session)
    rig.inference.end("job1", "quick")
    rig.turn()
    rig.inference.accept()
    rig.turn()
    assert future.result(0).id == "job1"
    assert rig.states(session) == [("done", "quick")]


def test_other_peoples_jobs_are_nothing_to_us() -> None:
    rig = Rig()
    session = rig.create()
    rig.append(session)
    rig.inference.end("strange", "not for us")
    rig.turn()
    job = rig.inference.accept()
    rig.turn()
    assert rig.states(session) == [("open", "")]
    rig.inference.end(job)
    rig.turn()
    assert rig.states(session) == [("done", "answer")]


def test_a_job_that_was_not_accepted_leaves_no_turn() -> None:
    rig = Rig()
    session = rig.create()
    future = rig.append(session)
    rig.inference.refuse(errors.Busy("cannot accept job: full"))
    with pytest.raises(errors.Busy):
        rig.get(future)
    assert rig.states(session) == []
    rig.talk(session, "again")


@pytest.mark.parametrize(
    ("keep", "text", "left"),
    [
        (True, "half", [("partial", "half")]),
        (True, "", [("failed", "")]),
        (False, "half", []),
        (False, "", []),
    ],
)
def test_what_is_kept_of_a_cancelled_answer_is_policy(
    keep: bool, text: str, left: list[tuple[str, str]]
) -> None:
    rig = Rig(keep_partial=keep)
    session = rig.create()
    rig.append(session)
    rig.inference.end(rig.inference.accept(), text, "cancelled")
    rig.turn()
    assert rig.states(session) == left


def test_a_failed_question_does_not_go_to_the_model_again() -> None:
    rig = Rig()
    session = rig.create()
    rig.append(session, "bad")
    rig.inference.end(rig.inference.accept(), "", "engine-failed")
    rig.talk(session, "good")
    assert [message.content for message in rig.inference.asks[-1].messages] == ["good"]


def test_an_answer_the_disk_refuses_is_held_and_written_later() -> None:
    rig = Rig()
    session = rig.create()
    rig.append(session)
    job = rig.inference.accept()
    rig.turn()
    rig.store.full = True
    rig.inference.end(job, "precious")
    rig.turn()
    with pytest.raises(errors.StorageFailed):
        rig.append(session).result(0)
    rig.store.full = False
    rig.pass_time(61)
    assert rig.states(session) == [("done", "precious")]


def test_a_question_the_disk_refuses_is_a_typed_error_and_asks_nothing() -> None:
    rig = Rig()
    session = rig.create()
    rig.store.full = True
    with pytest.raises(errors.StorageFailed):
        rig.append(session).result(0)
    assert rig.inference.asks == []
    rig.store.full = False
    assert rig.states(session) == []


def test_only_the_owner_may_use_a_session() -> None:
    rig = Rig()
    session = rig.create()
    service = rig.service
    for owner in (BOB, ROOT):
        for call in (
            service.get(session, owner), service.turns(session, owner, 0, 1),
            service.fork(session, owner), service.export(session, owner),
            service.configure(session, owner, lambda now: now), service.close(session, owner),
            service.append(session, owner, Ask(prompt="x"), Delivery(), -1),
        ):  # fmt: skip
            with pytest.raises(errors.NotFound):
                rig.get(call)
    for call in (service.delete(session, BOB), service.find(session, BOB)):
        with pytest.raises(errors.NotFound):
            rig.get(call)


def test_administrators_see_that_it_is_there_and_may_delete_it() -> None:
    rig = Rig()
    session = rig.create(title="private matter")
    assert rig.get(rig.service.sessions(BOB)) == ()
    seen: tuple[Session, ...] = rig.get(rig.service.sessions(ROOT))
    assert [(item.id, item.uid, item.settings.title) for item in seen] == [(session, 1000, "")]
    assert rig.get(rig.service.find(session, ROOT)).id == session
    rig.get(rig.service.delete(session, ROOT))
    assert rig.get(rig.service.sessions(ALICE)) == ()
    assert rig.gone == [session]


def test_deleting_cancels_its_answer_and_scrubs_the_file() -> None:
    rig = Rig()
    session = rig.create()
    rig.append(session)
    job = rig.inference.accept()
    before = rig.store.checkpoints
    rig.get(rig.service.delete(session, ALICE))
    assert rig.inference.cancelled == [job]
    assert rig.store.checkpoints > before
    rig.inference.end(job, "half", "cancelled")
    rig.turn()
    assert rig.get(rig.service.sessions(ALICE)) == ()


def test_a_job_accepted_after_its_session_was_deleted_is_cancelled() -> None:
    rig = Rig()
    session = rig.create()
    rig.append(session)
    rig.get(rig.service.delete(session, ALICE))
    job = rig.inference.accept()
    rig.turn()
    assert rig.inference.cancelled == [job]


def test_unused_sessions_expire_and_say_so() -> None:
    rig = Rig(ttl_s=Seconds(1000.0))
    old, short = rig.create(), rig.create(ttl_s=100.0)
    rig.pass_time(200)
    assert rig.gone == [short]
    rig.pass_time(900)
    assert rig.gone == [short, old]


def test_a_clock_that_jumps_to_today_makes_nothing_old() -> None:
    rig = Rig(ttl_s=Seconds(1000.0))
    rig.wall_s = 5.0
    rig.turn()
    session = rig.create()
    rig.clock.advance(61)
    rig.wall_s = 1.7e9
    rig.turn()
    assert rig.gone == []
    assert rig.get(rig.service.get(session, ALICE)).used_s > 1.6e9


def test_the_least_recently_used_gives_way_and_never_the_new_one() -> None:
    rig = Rig(max_sessions_per_user=2)
    first, second = rig.create(), None
    rig.pass_time(1)
    second = rig.create()
    rig.append(second)
    rig.inference.accept()
    rig.pass_time(1)
    third = rig.create()
    assert rig.gone == [first]
    rig.pass_time(1)
    fourth = rig.create()
    assert rig.gone == [first, third], "the one being answered stays"
    assert {item.id for item in rig.get(rig.service.sessions(ALICE))} == {second, fourth}


def test_policy_may_refuse_instead() -> None:
    rig = Rig(max_sessions_per_user=1, when_full="refuse")
    session = rig.create()
    for call in (rig.service.create(ALICE, Settings()), rig.service.fork(session, ALICE)):
        with pytest.raises(errors.QuotaExceeded) as caught:
            rig.get(call)
        assert caught.value.details == {"limit": "user-count"}
    rig.create(BOB)
    assert rig.gone == []


def test_a_session_that_grows_too_large_drops_its_oldest_turns() -> None:
    rig = Rig(max_bytes_per_session=Bytes(3000))
    session = rig.create(window_turns=50)
    rig.talk(session, *(f"{n}" * 300 for n in range(6)))
    found = rig.get(rig.service.get(session, ALICE))
    assert found.size_bytes <= 3000
    assert found.trimmed_turns > 0
    assert found.turns + found.trimmed_turns == 6
    rig.append(session, "next")
    newest = rig.get(rig.service.turns(session, ALICE, 0, 100))[-1]
    assert newest.omitted_turns == found.trimmed_turns


@pytest.mark.parametrize(("policy", "title"), [("off", ""), ("question", "What is it?")])
def test_titles_come_from_the_first_question_only_if_wanted(policy: str, title: str) -> None:
    rig = Rig(title=policy)
    session = rig.create()
    rig.talk(session, "What is it?\nReally", "and this")
    assert rig.get(rig.service.get(session, ALICE)).settings.title == title


def test_a_restart_ends_the_turn_it_cut_off() -> None:
    rig = Rig()
    session = rig.create()
    rig.talk(session, "kept")
    rig.append(session, "cut off")
    again = Rig()
    again.store = rig.store
    again.service = SessionService(
        rig.config, store=rig.store, inference=rig.inference,  # type: ignore[arg-type]
        authority=FakeAuthority(frozenset()), clock=rig.clock, wall_s=lambda: 1e9,
        new_id=lambda: "x",
    )  # fmt: skip
    assert again.states(session) == [("done", "re kept"), ("failed", "")]


def test_new_limits_are_taken_over() -> None:
    rig = Rig()
    rig.create()
    fresh = replace(rig.config.sessions, max_sessions_per_user=1, when_full="refuse")
    rig.service.reconfigure(replace(rig.config, sessions=fresh))
    with pytest.raises(errors.QuotaExceeded):
        rig.get(rig.service.create(ALICE, Settings()))


def test_a_fault_of_ours_reaches_the_caller_and_leaves_the_service_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()

    def broken(*_args: object) -> None:
        raise ValueError("bug")

    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "create", broken)
        with pytest.raises(ValueError, match="bug"):
            rig.get(rig.service.create(ALICE, Settings()))
    assert rig.create()


def test_stopping_writes_what_was_ended_and_refuses_what_comes_later() -> None:
    rig = Rig()
    rig.service.start()
    session = rig.service.create(ALICE, Settings()).result(5).id
    rig.service.append(session, ALICE, Ask(prompt="x"), Delivery(), -1)
    rig.service.get(session, ALICE).result(5)
    rig.inference.end(rig.inference.accept(), "last", "unavailable")
    rig.service.stop(Seconds(5))
    assert [turn.answer for turn in rig.store.turns(session, 1000, 0, 9)] == ["last"]
