"""The window and eviction for any conversation: nothing is lost in silence, no limit is passed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.core import conversation, retention
from stoker.core.conversation import Window
from stoker.events.sessions import DONE, Holding, Settings, Turn

texts = st.text(max_size=60)
turns = st.lists(st.tuples(texts, texts, st.integers(0, 400)), max_size=12).map(
    lambda items: [
        Turn(n, question, answer, DONE, completion_tokens=count)
        for n, (question, answer, count) in enumerate(items, 1)
    ]
)
windows = st.builds(Window, st.integers(0, 12), st.integers(0, 600), st.integers(0, 600))


@given(texts, turns, st.integers(0, 50), texts, windows)
def test_what_is_sent_is_a_suffix_and_what_is_not_is_counted(
    system: str, history: list[Turn], older: int, question: str, window: Window
) -> None:
    answered = older + len(history)
    plan = conversation.plan(Settings(system=system), history, answered, question, window)
    middle = plan.messages[1 if system else 0 : -1]
    sent = history[len(history) - plan.sent_turns :]
    assert [message.content for message in middle] == [
        text for turn in sent for text in (turn.question, turn.answer)
    ]
    assert [message.role for message in middle] == ["user", "assistant"] * plan.sent_turns
    assert (plan.messages[-1].role, plan.messages[-1].content) == ("user", question)
    assert plan.sent_turns + plan.omitted_turns == answered
    assert plan.sent_turns <= window.turns


@given(texts, turns, texts, windows)
def test_the_budget_holds_and_is_used(
    system: str, history: list[Turn], question: str, window: Window
) -> None:
    settings = Settings(system=system)
    plan = conversation.plan(settings, history, len(history), question, window)

    def size(message_count: int) -> int:
        return sum(len(m.content.encode()) for m in plan.messages[:message_count])

    if plan.sent_turns:
        assert not window.tokens or plan.tokens <= window.tokens
        assert not window.text_bytes or size(len(plan.messages)) <= window.text_bytes
    if plan.omitted_turns and plan.sent_turns < window.turns:
        wider = Window(plan.sent_turns + 1)
        more = conversation.plan(settings, history, len(history), question, wider)
        size_more = sum(len(m.content.encode()) for m in more.messages)
        assert (window.tokens and more.tokens > window.tokens) or (
            window.text_bytes and size_more > window.text_bytes
        )


@given(st.lists(st.integers(0, 100), max_size=10), st.integers(0, 50), st.integers(0, 500))
def test_trimming_drops_no_more_than_needed(sizes: list[int], fixed: int, limit: int) -> None:
    count = conversation.to_trim(sizes, fixed, limit)
    kept = fixed + sum(sizes[count:])
    assert kept <= limit or count >= len(sizes) - 1
    if count:
        assert kept + sizes[count - 1] > limit


holdings = st.lists(
    st.builds(
        Holding,
        st.uuids().map(str),
        st.integers(0, 3),
        st.floats(0, 100),
        st.integers(0, 50),
        st.sampled_from([0.0, 10.0]),
        st.booleans(),
    ),
    max_size=20,
    unique_by=lambda item: item.id,
)
bounds = st.builds(
    retention.Bounds, st.sampled_from([0.0, 30.0]), st.integers(1, 5), st.integers(0, 150),
    st.integers(0, 300),
)  # fmt: skip


@given(holdings, bounds)
def test_after_eviction_every_limit_holds_unless_all_that_is_left_is_busy(
    found: list[Holding], limits: retention.Bounds
) -> None:
    gone = {item.id for item in retention.overflowing(found, limits)}
    left = [item for item in found if item.id not in gone]
    assert not any(item.busy for item in found if item.id in gone)
    for uid in {item.uid for item in left}:
        own = [item for item in left if item.uid == uid]
        if not all(item.busy for item in own):
            assert len(own) <= limits.per_user
            assert sum(item.size_bytes for item in own) <= limits.per_user_bytes
    if not all(item.busy for item in left):
        assert sum(item.size_bytes for item in left) <= limits.all_bytes


@given(holdings, bounds, st.floats(0, 200))
def test_nothing_expires_before_its_time_or_while_busy(
    found: list[Holding], limits: retention.Bounds, now_s: float
) -> None:
    by_id = {item.id: item for item in found}
    for farewell in retention.expired(found, limits, now_s):
        item = by_id[farewell.id]
        assert not item.busy
        assert now_s - item.used_s > min(filter(None, (item.ttl_s, limits.ttl_s)))
