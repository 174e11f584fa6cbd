"""Gathered deltas say the same as single ones, in the same order, and soon enough."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from stoker.events.prompt import ToolCall
from stoker.events.runner import Delta
from stoker.runner.gather import Gather

JOBS = ("a", "b", "c")
pieces = st.builds(
    Delta,
    job=st.sampled_from(JOBS),
    t=st.sampled_from(["", "x", "yy"]),
    r=st.sampled_from(["", "", "r"]),
    p=st.sampled_from([None, None, None, (1, 2)]),
    tools=st.sampled_from([(), (), (ToolCall("1", "f", "{}"),)]),
    lp=st.sampled_from([None, None, {"content": [1]}, {"content": [2, 3]}]),
    done=st.sampled_from([None, None, None, {"finish_reason": "stop"}]),
    n=st.integers(0, 2),
    e=st.integers(0, 2),
)
steps = st.lists(st.tuples(st.lists(pieces, max_size=3), st.floats(0.0, 0.05)), max_size=60)


def said(deltas: Sequence[Delta], job: str) -> list[object]:
    """What a reader of this job sees: characters, progress and ends, in order."""
    out: list[object] = []
    for delta in deltas:
        if delta.job == job:
            out += [delta.p] if delta.p else []
            out += [("r", char) for char in delta.r] + [("t", char) for char in delta.t]
            out += delta.tools
            out += ["done"] if delta.done else []
    return out


def likelihoods(deltas: Sequence[Delta], job: str) -> list[object]:
    found = (delta.lp["content"] for delta in deltas if delta.job == job and delta.lp)
    return [item for content in found for item in content]  # type: ignore[attr-defined]


def tokens(deltas: Sequence[Delta], job: str) -> tuple[int, int]:
    mine = [delta for delta in deltas if delta.job == job]
    return sum(delta.n for delta in mine), sum(delta.e for delta in mine)


@given(steps=steps)
def test_nothing_is_lost_doubled_or_reordered(steps: list[tuple[list[Delta], float]]) -> None:
    gather, now_s = Gather(), 0.0
    given_in: list[Delta] = []
    sent: list[Delta] = []
    for items, gap_s in steps:
        now_s += gap_s
        given_in += items
        sent += gather.add(items, now_s)
    sent += gather.take(now_s)
    assert not gather.waiting
    for job in JOBS:
        assert said(sent, job) == said(given_in, job)
        assert likelihoods(sent, job) == likelihoods(given_in, job)
        assert tokens(sent, job) == tokens(given_in, job)


@given(steps=steps)
def test_ends_and_progress_never_wait(steps: list[tuple[list[Delta], float]]) -> None:
    gather, now_s = Gather(), 0.0
    for items, gap_s in steps:
        now_s += gap_s
        sent = gather.add(items, now_s)
        if any(item.done or item.p for item in items):
            assert not gather.waiting
            assert sent


def words(*texts: str) -> list[Delta]:
    return [Delta("a", t=text) for text in texts]


def test_a_first_word_leaves_at_once_and_the_next_quick_ones_together() -> None:
    gather = Gather(every_s=0.015)
    assert gather.add(words("one"), 0.0) == (Delta("a", t="one"),)
    assert gather.add(words(" two"), 0.006) == ()
    assert gather.add([Delta("b", t="first of b")], 0.007) == (
        Delta("a", t=" two"),
        Delta("b", t="first of b"),
    )
    assert gather.add(words(" three"), 0.012) == ()
    assert gather.add(words(" four"), 0.023) == (Delta("a", t=" three four"),)


def test_tokens_without_text_wake_nobody_and_do_not_pass_for_a_first_word() -> None:
    gather = Gather(every_s=0.015)
    assert gather.add([Delta("b", t="other")], 0.0)
    assert gather.add([Delta("a", n=1)], 0.006) == ()
    assert gather.add(words("first"), 0.007) == (Delta("a", t="first", n=1),)


def test_slow_steps_are_never_held_back() -> None:
    gather = Gather(every_s=0.015)
    for number in range(5):
        assert gather.add(words(str(number)), number * 0.016) == (Delta("a", t=str(number)),)
