"""What goes to the model, and what is kept: the cases that people meet."""

from __future__ import annotations

import json

import pytest

from stoker.core import conversation, retention
from stoker.core.conversation import Window
from stoker.events.prompt import Message
from stoker.events.sessions import DONE, FAILED, PARTIAL, Holding, Session, Settings, Turn

BOUNDS = retention.Bounds(ttl_s=100.0, per_user=2, per_user_bytes=1000, all_bytes=1500)


def turn(number: int, question: str = "q", answer: str = "a", tokens: int = 0) -> Turn:
    return Turn(number, f"{question}{number}", f"{answer}{number}", DONE, completion_tokens=tokens)


def test_the_last_turns_go_along_oldest_first_behind_the_system_message() -> None:
    history = [turn(n) for n in range(1, 8)]
    plan = conversation.plan(Settings(system="brief"), history, 7, "now", Window(2))
    assert plan.messages == (
        Message("system", "brief"),
        Message("user", "q6"),
        Message("assistant", "a6"),
        Message("user", "q7"),
        Message("assistant", "a7"),
        Message("user", "now"),
    )
    assert (plan.sent_turns, plan.omitted_turns) == (2, 5)


def test_a_window_of_no_turns_sends_the_question_alone_and_says_so() -> None:
    plan = conversation.plan(Settings(), [turn(1)], 1, "now", Window(0))
    assert plan.messages == (Message("user", "now"),)
    assert plan.omitted_turns == 1


def test_a_turn_that_does_not_fit_ends_the_window() -> None:
    history = [turn(1), turn(2, answer="x" * 3000), turn(3)]
    plan = conversation.plan(Settings(), history, 3, "now", Window(5, tokens=200))
    assert [message.content for message in plan.messages] == ["q3", "a3", "now"]
    assert plan.omitted_turns == 2
    assert plan.tokens <= 200


def test_bytes_bound_the_window_too() -> None:
    history = [turn(1, answer="x" * 500), turn(2)]
    plan = conversation.plan(Settings(), history, 2, "now", Window(5, text_bytes=300))
    assert plan.sent_turns == 1


def test_a_count_from_the_runner_is_used_unless_reasoning_swells_it() -> None:
    exact = Turn(1, "", "x" * 300, DONE, completion_tokens=10)
    swollen = Turn(1, "", "x" * 300, DONE, completion_tokens=5000)
    assert conversation.turn_tokens(exact) == 8 + 10 + 8
    assert conversation.turn_tokens(swollen) == 8 + 100 + 8


@pytest.mark.parametrize(
    ("wish", "context", "answer", "budget"),
    [(0, 0, 0, 0), (300, 0, 0, 300), (0, 2048, 512, 1536), (300, 2048, 512, 300), (0, 10, 50, 1)],
)
def test_the_budget_is_the_smaller_of_wish_and_room(
    wish: int, context: int, answer: int, budget: int
) -> None:
    assert conversation.budget(wish, context, answer) == budget


@pytest.mark.parametrize(
    ("text", "code", "state"),
    [("all", "", DONE), ("", "", DONE), ("half", "cancelled", PARTIAL), ("", "busy", FAILED)],
)
def test_how_a_turn_ended_is_in_its_state(text: str, code: str, state: str) -> None:
    found = conversation.ended(
        Turn(3, "q", omitted_turns=2, asked_s=1.0), text, finish_reason="stop", error_code=code,
        truncated=True, tokens=(7, 5), now_s=9.0,
    )  # fmt: skip
    assert (found.state, found.answer, found.error_code) == (state, text, code)
    assert (found.number, found.omitted_turns, found.asked_s, found.ended_s) == (3, 2, 1.0, 9.0)


def test_trimming_keeps_the_newest_turn_whatever_it_takes() -> None:
    assert conversation.to_trim([10, 10, 10], 5, 100) == 0
    assert conversation.to_trim([10, 10, 10], 5, 25) == 1
    assert conversation.to_trim([10, 10, 10], 5, 1) == 2
    assert conversation.to_trim([], 5, 1) == 0


def test_a_title_is_the_first_line_and_short() -> None:
    assert conversation.title_of("\n  Why is\tit so?\nmore") == "Why is it so?"
    long = conversation.title_of("word " * 50)
    assert len(long) <= conversation.TITLE_CHARACTERS
    assert long.endswith("…")
    assert conversation.title_of(" \n ") == ""


def test_what_no_file_can_hold_is_replaced() -> None:
    assert conversation.sound("a\0b\ud800c\U0001f600") == "a\ufffdb\ufffdc\U0001f600"
    conversation.sound("\udfff\ud800").encode()


def test_an_export_holds_every_turn_and_setting() -> None:
    session = Session("1f", 1000, Settings("t", "s", "m", 3, 4), 1.0, 2.0, 1)
    found = json.loads(conversation.export(session, [turn(1)]))
    assert found["format"] == "stoker-session"
    assert (found["title"], found["window_turns"], found["id"]) == ("t", 3, "1f")
    assert found["turns"][0]["question"] == "q1"
    assert "uid" not in found


def holding(key: str, uid: int, used_s: float, size: int = 1, **more: object) -> Holding:
    return Holding(key, uid, used_s, size, **more)  # type: ignore[arg-type]


def test_the_shorter_life_counts_and_a_busy_session_does_not_expire() -> None:
    found = [
        holding("old", 1, 0.0), holding("fresh", 1, 950.0), holding("busy", 1, 0.0, busy=True),
        holding("short", 1, 950.0, ttl_s=10.0), holding("long", 1, 0.0, ttl_s=5000.0),
        holding("tomorrow", 1, 5000.0),
    ]  # fmt: skip
    gone = {item.id for item in retention.expired(found, BOUNDS, 1000.0)}
    assert gone == {"old", "short", "long"}
    for_ever = retention.Bounds(0.0, 1, 1, 1)
    assert retention.expired([holding("old", 1, 0.0)], for_ever, 1e9) == []


def test_each_user_gives_up_only_their_own_least_recently_used() -> None:
    found = [holding(f"a{n}", 1, n) for n in range(4)] + [holding("b", 2, 0.0)]
    gone = retention.overflowing(found, BOUNDS)
    assert [(item.id, item.reason) for item in gone] == [("a0", "user-count"), ("a1", "user-count")]


def test_who_holds_most_gives_way_when_all_is_full() -> None:
    found = [holding("small", 1, 0.0, 600), holding("big", 2, 9.0, 500), holding("x", 2, 8.0, 450)]
    gone = retention.overflowing(found, BOUNDS)
    assert [(item.id, item.reason) for item in gone] == [("x", "all-bytes")]


def test_busy_sessions_stay_even_over_the_limit() -> None:
    found = [holding(f"a{n}", 1, n, 900, busy=True) for n in range(3)]
    assert retention.overflowing(found, BOUNDS) == []


@pytest.mark.parametrize(
    ("held", "newcomer", "why"),
    [
        ([], True, ""),
        ([holding("a", 1, 0), holding("b", 1, 0)], True, "user-count"),
        ([holding("a", 1, 0), holding("b", 1, 0)], False, ""),
        ([holding("a", 1, 0, 1000)], False, "user-bytes"),
        ([holding("a", 2, 0, 1500)], False, "all-bytes"),
    ],
)
def test_refusing_names_the_limit(held: list[Holding], newcomer: bool, why: str) -> None:
    assert retention.refusal(held, BOUNDS, 1, newcomer=newcomer) == why
