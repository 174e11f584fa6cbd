"""Summaries of what the window left out: when they are asked for, and what becomes of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.unit.services.session_rig import ALICE, ROOT, Rig

from stoker import errors
from stoker.events.inference import JobClass
from stoker.events.sessions import Settings
from stoker.ports.doors import JobView

EARLIER = "Earlier in this conversation: "


def talked(rig: Rig, *questions: str, system: str = "") -> str:
    """A session with a window of one turn."""
    session = rig.create(window_turns=1, system=system)
    rig.talk(session, *(questions or ("one", "two", "three")))
    return session


def stored(rig: Rig, session: str) -> tuple[str, int]:
    found = rig.get(rig.service.get(session, ALICE))
    return found.summary, found.summary_upto


def summarised(rig: Rig, session: str, text: str = "They counted.") -> None:
    rig.inference.end(rig.inference.accept(), text)
    rig.turn()
    assert stored(rig, session)[0] == text


def test_without_the_setting_nothing_is_asked() -> None:
    rig = Rig()
    session = talked(rig)
    assert len(rig.inference.asks) == 3
    assert stored(rig, session) == ("", 0)


@pytest.mark.parametrize(
    ("configured", "own", "asked"), [("off", "on", 4), ("on", "off", 3), ("on", "", 4)]
)
def test_a_session_may_say_otherwise_than_the_configuration(
    configured: str, own: str, asked: int
) -> None:
    rig = Rig(summary=configured)
    session = rig.create(window_turns=1, summaries=own)
    rig.talk(session, "one", "two", "three")
    assert len(rig.inference.asks) == asked


def test_a_session_that_wants_none_any_more_sends_none() -> None:
    rig = Rig(summary="on")
    session = talked(rig)
    summarised(rig, session)

    def silent(settings: Settings) -> Settings:
        return replace(settings, summaries="off")

    rig.get(rig.service.configure(session, ALICE, silent))
    rig.append(session, "four")
    assert all(EARLIER not in message.content for message in rig.inference.asks[-1].messages)


def test_nothing_is_asked_while_everything_goes_along() -> None:
    rig = Rig(summary="on")
    talked(rig, "one", "two")
    assert len(rig.inference.asks) == 2


def test_a_turn_left_out_is_summarised_in_the_background_and_goes_along_after() -> None:
    rig = Rig(summary="on")
    session = talked(rig, system="brief")
    ask, delivery, owner = rig.inference.asks[-1], *rig.inference.given[-1]
    assert "User: one" in ask.messages[-1].content
    assert "two" not in ask.messages[-1].content
    assert (ask.max_tokens, ask.sampling.temperature, ask.keep) == (120, 0.0, "")
    assert (delivery.job_class, owner.uid, owner.unique_name) == (JobClass.BACKGROUND, 1000, "")
    summarised(rig, session)
    assert stored(rig, session) == ("They counted.", 1)
    rig.append(session, "four")
    head = rig.inference.asks[-1].messages[0]
    assert (head.role, head.content) == ("system", f"brief\n\n{EARLIER}They counted.")


def test_the_next_one_goes_on_from_the_last() -> None:
    rig = Rig(summary="on")
    session = talked(rig)
    summarised(rig, session)
    rig.talk(session, "four")
    said = rig.inference.asks[-1].messages[-1].content
    assert "Summary so far: They counted." in said
    assert "User: two" in said
    assert "User: one" not in said
    summarised(rig, session, "They counted on.")
    assert stored(rig, session) == ("They counted on.", 2)


@pytest.mark.parametrize(("text", "code"), [("half", "engine-failed"), (" \n", "")])
def test_a_failed_one_changes_nothing_and_is_tried_after_a_later_turn(text: str, code: str) -> None:
    rig = Rig(summary="on")
    session = talked(rig)
    rig.inference.end(rig.inference.accept(), text, code)
    rig.turn()
    assert stored(rig, session) == ("", 0)
    rig.talk(session, "four")
    said = rig.inference.asks[-1].messages[-1].content
    assert "User: one" in said
    assert "User: two" in said
    summarised(rig, session)
    assert stored(rig, session)[1] == 2


def test_a_refused_one_changes_nothing_and_is_tried_after_a_later_turn() -> None:
    rig = Rig(summary="on")
    session = talked(rig)
    rig.inference.refuse(errors.QuotaExceeded("cannot accept job: enough"))
    rig.turn()
    rig.talk(session, "four")
    summarised(rig, session)


def test_a_new_question_does_not_wait_for_it_and_its_late_end_is_nothing() -> None:
    rig = Rig(summary="on")
    session = talked(rig)
    job = rig.inference.accept()
    rig.turn()
    future = rig.append(session, "four")
    assert rig.inference.cancelled == [job]
    rig.inference.end(job, "late")
    rig.inference.end(rig.inference.accept(), "re four")
    assert rig.get(future)
    assert stored(rig, session) == ("", 0)
    assert rig.states(session)[-1] == ("done", "re four")


def test_one_that_is_accepted_after_a_new_question_is_cancelled() -> None:
    rig = Rig(summary="on")
    session = talked(rig)
    summary = rig.inference.futures[-1]
    rig.append(session, "four")
    summary.set_result(JobView("late", ALICE, "queued"))
    rig.turn()
    assert rig.inference.cancelled == ["late"]


def test_an_end_before_the_acceptance_is_heard_is_not_lost() -> None:
    rig = Rig(summary="on")
    session = talked(rig)
    rig.inference.end("job4", "quick")
    rig.turn()
    rig.inference.accept()
    rig.turn()
    assert stored(rig, session) == ("quick", 1)


def test_a_deleted_session_forgets_it() -> None:
    rig = Rig(summary="on")
    session = talked(rig)
    job = rig.inference.accept()
    rig.turn()
    rig.get(rig.service.delete(session, ALICE))
    assert rig.inference.cancelled == [job]
    rig.inference.end(job, "late")
    rig.turn()
    with pytest.raises(errors.NotFound):
        rig.get(rig.service.get(session, ALICE))


def test_one_of_turns_that_were_dropped_meanwhile_is_not_kept() -> None:
    rig = Rig(summary="on")
    session = talked(rig)
    job = rig.inference.accept()
    rig.turn()
    assert rig.store.trim(session, ALICE.uid, 1) == 2
    rig.inference.end(job, "late")
    rig.turn()
    assert stored(rig, session) == ("", 0)


def test_a_full_disk_costs_the_summary_alone() -> None:
    rig = Rig(summary="on")
    session = talked(rig)
    job = rig.inference.accept()
    rig.turn()
    rig.store.full = True
    rig.inference.end(job, "lost")
    rig.turn()
    rig.store.full = False
    assert stored(rig, session) == ("", 0)
    rig.talk(session, "four")
    summarised(rig, session)


def test_none_is_asked_after_a_turn_that_failed() -> None:
    rig = Rig(summary="on")
    session = talked(rig, "one", "two")
    rig.append(session, "three")
    rig.inference.end(rig.inference.accept(), "", "engine-failed")
    rig.turn()
    assert len(rig.inference.asks) == 3


def test_it_is_exported_and_hidden_from_administrators() -> None:
    rig = Rig(summary="on")
    session = talked(rig)
    summarised(rig, session)
    exported = json.loads(rig.get(rig.service.export(session, ALICE)))
    assert (exported["summary"], exported["summary_upto"]) == ("They counted.", 1)
    (seen,) = rig.get(rig.service.sessions(ROOT))
    assert (seen.summary, seen.settings) == ("", Settings())


def test_switched_off_it_stays_but_no_longer_goes_along() -> None:
    rig = Rig(summary="on")
    session = talked(rig)
    summarised(rig, session)
    rig.service.reconfigure(Rig().config)
    rig.append(session, "four")
    assert rig.inference.asks[-1].messages[0].content == "three"
    assert stored(rig, session) == ("They counted.", 1)
