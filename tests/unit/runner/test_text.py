"""Stop strings, reasoning and UTF-8 in the cases that users meet."""

from __future__ import annotations

import pytest

from stoker.errors import InvalidRequest
from stoker.runner import reasoning, stops
from stoker.runner.composer import Composer
from stoker.runner.stops import StopMatcher


def test_half_a_stop_string_is_not_streamed() -> None:
    matcher = StopMatcher(["\nUser:"])
    assert matcher.feed("Hello\nUs") == "Hello"
    assert matcher.feed("er: more") == ""
    assert matcher.stopped
    assert matcher.flush() == ""


def test_a_held_back_start_comes_out_when_it_was_no_stop() -> None:
    matcher = StopMatcher(["STOP"])
    assert [matcher.feed(part) for part in ("a ST", "AR")] == ["a ", "STAR"]


def test_held_text_is_flushed_at_the_end() -> None:
    matcher = StopMatcher(["STOP"])
    assert matcher.feed("a STO") == "a "
    assert matcher.flush() == "STO"


@pytest.mark.parametrize("bad", [("",), ("x" * 300,), tuple("abcdefghijklmnopq")])
def test_unusable_stop_strings_are_refused(bad: tuple[str, ...]) -> None:
    with pytest.raises(InvalidRequest):
        stops.check(bad)


def test_reasoning_is_separated_from_the_answer() -> None:
    composer = Composer((), reasoning=True, inside=False)
    parts = [composer.feed(p) for p in (b"<thi", b"nk>\nhm", b"</th", b"ink>\n\n", b"42")]
    assert "".join(a for a, _ in parts) == "42"
    assert "".join(r for _, r in parts) == "hm"
    assert composer.reasoning_tokens == 3  # the tags count once they are known as such


def test_prompt_that_opens_the_thought_starts_inside_it() -> None:
    assert reasoning.opened_by("<|Assistant|><think>\n")
    assert not reasoning.opened_by("<think>x</think>")
    composer = Composer((), reasoning=True, inside=True)
    assert composer.feed(b"hm</think>yes") == ("yes", "hm")


def test_tag_quoted_later_in_an_answer_is_text() -> None:
    composer = Composer((), reasoning=True, inside=False)
    assert composer.feed(b"Use <think> tags") == ("Use <think> tags", "")


def test_reasoning_switched_off_leaves_the_tags() -> None:
    composer = Composer((), reasoning=False, inside=True)
    assert composer.feed(b"<think>a</think>b") == ("<think>a</think>b", "")


def test_stop_string_in_the_thoughts_does_not_end_the_job() -> None:
    composer = Composer(("END",), reasoning=True, inside=False)
    assert composer.feed(b"<think>END</think>go END") == ("go ", "END")
    assert composer.stopped


def test_unfinished_character_at_the_end_becomes_a_replacement() -> None:
    composer = Composer((), reasoning=True, inside=False)
    assert composer.feed("ok é".encode()[:-1]) == ("ok ", "")
    assert composer.finish() == ("\ufffd", "")
