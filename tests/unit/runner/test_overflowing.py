"""What goes when a conversation does not fit, and what never does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import ContextLengthExceeded
from stoker.events.prompt import Message
from stoker.events.runner import Generate, Load
from stoker.runner import overflowing
from stoker.runner.echo import EchoEngine
from stoker.runner.intake import Intake

MESSAGES = st.lists(
    st.builds(
        Message, st.sampled_from(["system", "user", "assistant", "tool"]), st.text(max_size=3)
    ),
    min_size=1,
    max_size=12,
).map(tuple)


@settings(deadline=None)
@given(MESSAGES, st.integers(0, 12))
def test_system_messages_and_the_last_turn_always_stay(
    messages: tuple[Message, ...], turns: int
) -> None:
    request = Generate("j", messages=messages)
    most = overflowing.droppable(request)
    left = overflowing.without(request, min(turns, most))
    assert [m for m in left if m.role == "system"] == [m for m in messages if m.role == "system"]
    talk = [m for m in messages if m.role != "system"]
    rest = [m for m in left if m.role != "system"]
    assert rest == talk[len(talk) - len(rest) :], "the oldest go, in order"
    assert bool(rest) == bool(talk)
    if 0 < turns <= most:
        assert rest[0].role == "user", "an answer without its question misleads"


@settings(deadline=None)
@given(st.integers(16, 5000), st.integers(1, 5000))
def test_a_shift_frees_room_and_keeps_the_beginning(context: int, prompt: int) -> None:
    keep, discard = overflowing.shift(context, min(prompt, context - 1))
    assert 0 < keep <= context // 4
    assert discard > 0
    assert keep + discard < context - 1


class Joining(EchoEngine):
    def render(self, messages: object, **_settings: object) -> str:
        return " ".join(m.content for m in messages)  # type: ignore[attr-defined]


def _intake(context_tokens: int) -> Intake:
    engine = Joining()
    engine.load(Load("l", "m", "p", context_tokens=context_tokens), lambda _: True)
    return Intake(engine)


def _talk(*words: int) -> tuple[Message, ...]:
    roles = ("user", "assistant")
    return tuple(Message(roles[n % 2], "word " * count) for n, count in enumerate(words))


def test_the_fewest_turns_that_make_it_fit_go() -> None:
    system = Message("system", "be brief")
    request = Generate("j", messages=(system, *_talk(10, 10, 10, 10, 10, 10, 5)), max_tokens=10,
                       overflow="truncate-oldest")  # fmt: skip
    job = _intake(60).job(request, 0.0)
    assert job.prompt <= 50
    assert job._left_out() == {"omitted_messages": 2, "omitted_tokens": 20}


def test_what_fits_is_left_alone_and_what_never_fits_is_an_error() -> None:
    intake = _intake(60)
    fits = Generate("j", messages=_talk(10, 10, 10), overflow="truncate-oldest", max_tokens=5)
    assert intake.job(fits, 0.0)._left_out() == {}
    for request in (
        Generate("k", messages=_talk(10, 10, 70), overflow="truncate-oldest"),
        Generate("k", messages=_talk(30, 30, 20)),
        Generate("k", prompt="word " * 70, raw=True, overflow="truncate-oldest"),
    ):
        with pytest.raises(ContextLengthExceeded) as caught:
            intake.job(request, 0.0)
        assert caught.value.details["context_tokens"] == 60
