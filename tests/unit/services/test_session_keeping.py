"""Whose a conversation is, how long it stays, and what happens at a limit or a restart."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest
from tests.fakes.doors import FakeAuthority
from tests.unit.services.session_rig import ALICE, BOB, ROOT, Rig

from stoker import errors
from stoker.events.inference import Ask, Delivery
from stoker.events.sessions import Session, Settings
from stoker.services.sessions import SessionService
from stoker.units import Bytes, Seconds


def test_only_the_owner_may_use_a_session() -> None:
    rig = Rig()
    session = rig.create()
    service = rig.service
    for owner in (BOB, ROOT):
        calls: tuple[Future[Any], ...] = (
            service.get(session, owner), service.turns(session, owner, 0, 1),
            service.fork(session, owner), service.export(session, owner),
            service.configure(session, owner, lambda now: now), service.close(session, owner),
            service.append(session, owner, Ask(prompt="x"), Delivery(), -1),
        )  # fmt: skip
        for call in calls:
            with pytest.raises(errors.NotFound):
                rig.get(call)
    others: tuple[Future[Any], ...] = (service.delete(session, BOB), service.find(session, BOB))
    for call in others:
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


def test_a_device_that_sleeps_through_the_weekend_has_set_no_clock() -> None:
    rig = Rig(ttl_s=Seconds(200 * 3600.0))
    rig.turn()
    session = rig.create()
    used_s = rig.get(rig.service.get(session, ALICE)).used_s
    rig.asleep_s = Seconds(60 * 3600.0)
    rig.wall_s += rig.asleep_s
    rig.pass_time(61)
    assert rig.get(rig.service.get(session, ALICE)).used_s == used_s
    rig.asleep_s = Seconds(210 * 3600.0)
    rig.wall_s += 150 * 3600.0
    rig.pass_time(61)
    assert rig.gone == [session]


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
