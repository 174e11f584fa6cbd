"""The store's contract, in SQLite and in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.sessions import MemorySessionStore

from stoker.core import conversation
from stoker.drivers.session_store import SqliteSessionStore
from stoker.events.sessions import DONE, FAILED, OPEN, PARTIAL, Session, Settings, Turn
from stoker.ports.sessions import SessionStore
from stoker.units import Seconds

ALICE, BOB = 1000, 1001
SETTINGS = Settings("ö title", "be brief", "tiny", 3, 900, Seconds(60.0), "on")


@pytest.fixture(params=["sqlite", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SessionStore]:
    found: SessionStore = MemorySessionStore()
    if request.param == "sqlite":
        found = SqliteSessionStore(tmp_path / "state" / "sessions.db")
    found.open()
    yield found
    found.close()
    found.close()


def begin(store: SessionStore, text: str = "why?", at_s: float = 20.0) -> Turn:
    return store.begin_turn("a", ALICE, Turn(0, text, omitted_turns=2, asked_s=at_s))


def answer(store: SessionStore, text: str = "so", at_s: float = 20.0, code: str = "") -> Turn:
    turn = conversation.ended(
        begin(store, at_s=at_s), text, finish_reason="stop", error_code=code, truncated=True,
        tokens=(9, 4), now_s=at_s + 1,
    )  # fmt: skip
    assert store.finish_turn("a", ALICE, turn)
    return turn


def make(store: SessionStore, key: str = "a", uid: int = ALICE, at_s: float = 10.0) -> None:
    store.create(Session(key, uid, SETTINGS, at_s, at_s))


def test_a_session_is_read_back_as_it_was_made(store: SessionStore) -> None:
    make(store)
    found = store.get("a", ALICE)
    assert found is not None
    assert (found.settings, found.created_s, found.used_s, found.turns) == (SETTINGS, 10.0, 10.0, 0)
    assert found.size_bytes == conversation.session_bytes(SETTINGS)


def test_a_summary_is_kept_counted_and_copied(store: SessionStore) -> None:
    make(store)
    seen = store.get("a", ALICE)
    assert seen is not None
    assert store.summarize(seen, "kürzer", 2)
    store.configure("a", ALICE, replace(SETTINGS, summaries="off"))
    answer(store)
    assert store.fork("a", ALICE, "b", 30.0)
    for key in ("a", "b"):
        found = store.get(key, ALICE)
        assert found is not None
        assert found.settings.summaries == "off"
        assert (found.summary, found.summary_upto) == ("kürzer", 2)
        own = conversation.session_bytes(SETTINGS) + 7
        assert found.size_bytes == own + conversation.turn_bytes("why?", "so")


def test_a_summary_of_what_is_no_more_is_not_kept(store: SessionStore) -> None:
    make(store)
    first = store.get("a", ALICE)
    assert first is not None
    assert not store.summarize(replace(first, uid=BOB), "x", 1)
    assert store.summarize(first, "x", 1)
    assert not store.summarize(first, "older", 1)
    seen = store.get("a", ALICE)
    assert seen is not None
    for _ in range(3):
        answer(store)
    store.trim("a", ALICE, 1)
    assert not store.summarize(seen, "y", 2)
    found = store.get("a", ALICE)
    assert found is not None
    assert found.summary == "x"


def test_answered_turns_between_two_numbers(store: SessionStore) -> None:
    make(store)
    for code, text in (("", "a"), ("", "b"), ("failed", ""), ("cancelled", "d"), ("", "e")):
        answer(store, text, code=code)
    for after, below, limit, numbers in (
        (0, 9, 9, [1, 2, 4, 5]),
        (1, 5, 9, [2, 4]),
        (0, 9, 1, [1]),
    ):
        found = store.between("a", ALICE, after, below, limit)
        assert [turn.number for turn in found] == numbers
    assert store.between("a", BOB, 0, 9, 9) == ()


def test_a_turn_is_written_in_two_steps(store: SessionStore) -> None:
    make(store)
    open_turn = begin(store)
    assert (open_turn.number, open_turn.state) == (1, OPEN)
    assert store.turns("a", ALICE, 0, 10) == (open_turn,)
    assert store.holdings()[0].busy
    assert store.answered("a", ALICE, 10) == (0, ())
    turn = conversation.ended(
        open_turn, "so", finish_reason="stop", error_code="", truncated=False, tokens=(9, 4),
        now_s=30.0,
    )  # fmt: skip
    assert store.finish_turn("a", ALICE, turn)
    assert store.turns("a", ALICE, 0, 10) == (turn,)
    assert store.answered("a", ALICE, 10) == (1, (turn,))
    found = store.get("a", ALICE)
    assert found is not None
    assert (found.used_s, found.turns) == (30.0, 1)
    assert not store.finish_turn("a", ALICE, turn), "an ended turn is not written again"


def test_another_user_sees_and_changes_nothing(store: SessionStore) -> None:
    make(store)
    turn = answer(store)
    assert store.get("a", BOB) is None
    assert store.of_user(BOB) == ()
    assert store.turns("a", BOB, 0, 10) == ()
    assert store.answered("a", BOB, 10) == (0, ())
    assert not store.configure("a", BOB, Settings())
    assert not store.finish_turn("a", BOB, turn)
    assert not store.fork("a", BOB, "copy", 1.0)
    assert not store.delete("a", BOB)
    assert store.trim("a", BOB, 1) == 0
    store.drop_turn("a", BOB, turn.number)
    assert store.turns("a", ALICE, 0, 10) == (turn,)
    assert len(store.everyone()) == 1


def test_the_newest_answered_turns_come_oldest_first(store: SessionStore) -> None:
    make(store)
    answer(store, "one")
    answer(store, "", code="engine-failed")
    answer(store, "three", code="cancelled")
    answer(store, "four")
    count, newest = store.answered("a", ALICE, 2)
    assert count == 3
    assert [(turn.answer, turn.state) for turn in newest] == [("three", PARTIAL), ("four", DONE)]
    assert store.answered("a", ALICE, 0) == (3, ())
    assert [turn.number for turn in store.turns("a", ALICE, 1, 2)] == [2, 3]


def test_a_dropped_turns_number_is_not_used_again(store: SessionStore) -> None:
    make(store)
    store.drop_turn("a", ALICE, begin(store).number)
    assert begin(store).number == 2
    found = store.get("a", ALICE)
    assert found is not None
    assert found.turns == 1


def test_trimmed_turns_are_counted_and_stay_in_the_total(store: SessionStore) -> None:
    make(store)
    answer(store, "x" * 1000)
    answer(store, "", code="busy")
    last = answer(store, "y" * 1000)
    assert store.trim("a", ALICE, 1 << 20) == 0
    assert store.trim("a", ALICE, 100) == 2
    found = store.get("a", ALICE)
    assert found is not None
    assert (found.turns, found.trimmed_turns) == (1, 2)
    assert store.answered("a", ALICE, 5) == (2, (last,))


def test_a_fork_has_what_was_ended_and_goes_its_own_way(store: SessionStore) -> None:
    make(store)
    first = answer(store)
    begin(store)
    assert store.fork("a", ALICE, "b", 99.0)
    copy = store.get("b", ALICE)
    assert copy is not None
    assert (copy.settings, copy.created_s, copy.turns) == (SETTINGS, 99.0, 1)
    assert store.turns("b", ALICE, 0, 10) == (first,)
    assert store.delete("a", ALICE)
    assert store.turns("b", ALICE, 0, 10) == (first,)


def test_settings_change_the_size_too(store: SessionStore) -> None:
    make(store)
    answer(store)
    before = store.get("a", ALICE)
    assert store.configure("a", ALICE, Settings(system="x" * 100))
    after = store.get("a", ALICE)
    assert before is not None
    assert after is not None
    expected = conversation.session_bytes(after.settings) - conversation.session_bytes(SETTINGS)
    assert after.size_bytes - before.size_bytes == expected


def test_lists_have_the_latest_use_first(store: SessionStore) -> None:
    for key, uid, at_s in (("x", ALICE, 1.0), ("y", ALICE, 3.0), ("z", BOB, 2.0)):
        make(store, key, uid, at_s)
    assert [item.id for item in store.of_user(ALICE)] == ["y", "x"]
    assert [item.id for item in store.everyone()] == ["y", "z", "x"]


@pytest.mark.parametrize("keep", [True, False])
def test_settling_ends_what_a_crash_left_open(store: SessionStore, keep: bool) -> None:
    make(store)
    done = answer(store)
    begin(store)
    assert store.settle(keep, 50.0) == 1
    assert store.settle(keep, 50.0) == 0
    found = store.turns("a", ALICE, 0, 10)
    assert found[0] == done
    assert [(turn.state, turn.question) for turn in found[1:]] == [(FAILED, "why?")] * keep
    assert not store.holdings()[0].busy


def test_times_written_since_the_start_follow_a_clock_that_was_set(store: SessionStore) -> None:
    make(store, "old", at_s=5.0)
    make(store, "new", at_s=20.0)
    store.shift(10.0, 1000.0)
    assert [(s.id, s.used_s, s.created_s) for s in store.everyone()] == [
        ("new", 1020.0, 1020.0), ("old", 5.0, 5.0),
    ]  # fmt: skip


def test_deleting_takes_the_turns_along(store: SessionStore) -> None:
    make(store)
    answer(store)
    assert store.delete("a", ALICE)
    assert not store.delete("a", ALICE)
    make(store)
    assert store.turns("a", ALICE, 0, 10) == ()
    assert store.checkpoint()


def test_text_of_any_kind_comes_back(store: SessionStore) -> None:
    make(store)
    text = "a\0b\n\"'; DROP TABLE turns; -- \U0001f600"
    turn = begin(store, text)
    assert store.turns("a", ALICE, 0, 1)[0].question == turn.question == text
