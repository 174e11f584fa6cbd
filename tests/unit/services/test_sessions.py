"""Turns of a conversation: what goes to the model, and what becomes of each answer."""

from __future__ import annotations

import json
import os

import pytest
from tests.unit.services.session_rig import ALICE, Rig

from stoker import errors
from stoker.events.inference import Ask, Delivery


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


def test_a_question_names_its_conversation_and_a_deleted_one_is_forgotten() -> None:
    rig = Rig()
    session = rig.create()
    rig.talk(session, "why?")
    assert rig.inference.asks[-1].keep == session
    rig.get(rig.service.delete(session, ALICE))
    assert rig.inference.forgotten == [(1000, session)]


def test_states_of_conversations_that_are_no_more_are_dropped_when_a_runner_is_ready() -> None:
    rig = Rig()
    session = rig.create()
    rig.inference.tell_saved({"1000": [session, "gone"], "1001": [session], "odd": ["x"]})
    rig.turn()
    assert rig.inference.forgotten == [(1000, "gone"), (1001, session)]


def test_an_expired_conversation_is_forgotten_by_the_runner() -> None:
    rig = Rig(ttl_s=100.0)
    session = rig.create()
    rig.pass_time(200.0)
    assert rig.inference.forgotten == [(1000, session)]


def test_closing_drops_what_the_runner_holds_and_keeps_the_text() -> None:
    rig = Rig()
    session = rig.create()
    rig.talk(session, "one")
    rig.get(rig.service.close(session, ALICE))
    assert rig.inference.forgotten == [(1000, session)]
    assert rig.states(session) == [("done", "re one")]
