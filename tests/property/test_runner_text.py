"""The text path of the runner gives the same result however the text is cut in pieces."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from stoker.runner.composer import Composer
from stoker.runner.reasoning import ReasoningSplitter
from stoker.runner.stops import StopMatcher
from stoker.runner.utf8 import Utf8Stream

T = TypeVar("T", bytes, str)


@st.composite
def _cut(draw: st.DrawFn, whole: st.SearchStrategy[T]) -> tuple[T, list[T]]:
    value = draw(whole)
    cuts: list[int] = draw(st.lists(st.integers(0, len(value)), max_size=12))
    edges = [0, *sorted(cuts), len(value)]
    return value, [value[a:b] for a, b in pairwise(edges)]


_BYTES = st.one_of(
    st.binary(max_size=60),
    st.text(max_size=30).map(lambda text: text.encode("utf-8", "replace")),
    st.lists(st.sampled_from([b"\xf0\x9f", b"\x94\xa5", b"\xc3", b"\xbc", b"a", b"\xff"])).map(
        b"".join
    ),
)


@given(_cut(_BYTES))
def test_utf8_of_pieces_equals_utf8_of_the_whole(cut: tuple[bytes, list[bytes]]) -> None:
    whole, pieces = cut
    stream = Utf8Stream()
    assert "".join([*map(stream.feed, pieces), stream.flush()]) == whole.decode("utf-8", "replace")


@given(st.text(max_size=30).filter(lambda text: "\ufffd" not in text))
def test_no_character_is_ever_split(text: str) -> None:
    stream = Utf8Stream()
    data = text.encode("utf-8", "replace")
    assert all("\ufffd" not in stream.feed(data[i : i + 1]) for i in range(len(data)))


def _reference_stop(text: str, stops: list[str]) -> tuple[str, bool]:
    """The shortest prefix that ends in a stop string, without it (the longest such stop)."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: end - max(map(len, found))], True
    return text, False


_AB = st.text(alphabet="abc", max_size=24)
_STOPS = st.lists(st.text(alphabet="abc", min_size=1, max_size=5), min_size=1, max_size=4)


@given(_cut(_AB), _STOPS)
def test_stop_matcher_equals_reference_on_any_split(
    cut: tuple[str, list[str]], stops: list[str]
) -> None:
    whole, pieces = cut
    matcher = StopMatcher(stops)
    out = "".join(map(matcher.feed, pieces)) + matcher.flush()
    assert (out, matcher.stopped) == _reference_stop(whole, stops)


@given(_AB, _STOPS)
def test_stop_matcher_holds_back_no_more_than_a_stop_could_need(
    text: str, stops: list[str]
) -> None:
    matcher = StopMatcher(stops)
    given_out = ""
    for index, char in enumerate(text, 1):
        given_out += matcher.feed(char)
        if not matcher.stopped:
            assert index - len(given_out) < max(map(len, stops))


def _reference_reasoning(text: str, *, inside: bool) -> tuple[str, str]:
    if not inside:
        opened = re.match(r"\s*<think>", text)
        if not opened:
            return text, ""
        text = text[opened.end() :]
    thought, closed, answer = text.lstrip("\r\n").partition("</think>")
    return (answer.lstrip("\r\n") if closed else ""), thought


_TAGGED = st.lists(
    st.sampled_from(["<think>", "</think>", "<thi", "</", "<", ">", "\n", " ", "a", "é", "think"]),
    max_size=12,
).map("".join)


@given(_cut(_TAGGED), st.booleans())
def test_reasoning_splitter_equals_reference_on_any_split(
    cut: tuple[str, list[str]], inside: bool
) -> None:
    whole, pieces = cut
    splitter = ReasoningSplitter(inside=inside)
    parts = [*map(splitter.feed, pieces), splitter.flush()]
    got = "".join(a for a, _ in parts), "".join(r for _, r in parts)
    assert got == _reference_reasoning(whole, inside=inside)


@given(_cut(st.one_of(_TAGGED, _AB).map(str.encode)), _STOPS)
def test_whole_text_path_does_not_depend_on_the_split(
    cut: tuple[bytes, list[bytes]], stops: list[str]
) -> None:
    whole, pieces = cut
    results = []
    for feed in ([whole], pieces):
        composer = Composer(stops, reasoning=True, inside=False)
        parts = [*map(composer.feed, feed), composer.finish()]
        results.append(("".join(a for a, _ in parts), "".join(r for _, r in parts)))
    assert results[0] == results[1]
