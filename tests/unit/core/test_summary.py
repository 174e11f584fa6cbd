"""What a summary is asked for with, and how it goes along."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.core import summary
from stoker.events.sessions import Turn

TEXT = st.text(max_size=3000)


def test_the_task_holds_the_last_summary_and_the_turns() -> None:
    turns = [Turn(4, "plant roses?", "in spring"), Turn(6, "and tulips?", "in autumn")]
    found = summary.task("Ann has a garden.", turns, 1000)
    assert [message.role for message in found.messages] == ["system", "user"]
    said = found.messages[1].content
    for text in ("Summary so far: Ann has a garden.", "User: plant roses?", "Assistant: in autumn"):
        assert text in said
    assert found.upto == 6


def test_turns_that_do_not_fit_wait_for_the_next_task() -> None:
    turns = [Turn(number, "q" * 100, "a" * 100) for number in range(1, 9)]
    assert summary.task("", turns, 700).upto == 3
    assert summary.task("s" * 300, turns, 700).upto == 2


@given(
    previous=TEXT,
    texts=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=4),
    context=st.integers(0, 8192),
)
def test_a_task_is_bounded_and_always_gets_on(
    previous: str, texts: list[tuple[str, str]], context: int
) -> None:
    turns = [Turn(number, *pair) for number, pair in enumerate(texts, 7)]
    room = summary.room(context)
    found = summary.task(previous, turns, room)
    frame = summary.task("", [Turn(1, "", "")], room).messages[1].content
    assert len(found.messages[1].content.encode()) <= room + len(frame) + 50
    assert 7 <= found.upto < 7 + len(turns)


def test_the_task_follows_a_small_context() -> None:
    assert summary.room(0) == summary.room(32_768) == summary.MAX_TEXT_BYTES
    assert summary.room(1024) == (1024 - 120 - 160) * 3
    assert summary.room(10) > 0


@given(TEXT)
def test_what_is_kept_is_short_sound_text(text: str) -> None:
    kept = summary.clean(text)
    assert len(kept.encode()) <= summary.SUMMARY_BYTES
    assert "\n" not in kept
    assert "\0" not in kept


def test_a_cut_never_halves_a_character() -> None:
    assert summary.clip("aöö", 4) == "aö"
    assert summary.clip("a\ud800", 9) == "a\ufffd"
    assert summary.clip("abc", -1) == ""


def test_the_system_message_tells_it_and_is_itself_without_one() -> None:
    assert summary.head("brief", "") == "brief"
    assert summary.head("", "x") == "Earlier in this conversation: x"
    assert summary.head("brief", "x") == "brief\n\nEarlier in this conversation: x"
