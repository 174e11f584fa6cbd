"""What a caller may write into a{sv}, and what is refused with its path."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoker.api.requests import Limits, parse_ask, parse_delivery, parse_question, parse_text
from stoker.config.schema import Config
from stoker.errors import InvalidRequest
from stoker.events.inference import Ask, Delivery, JobClass
from stoker.events.prompt import Message, Sampling

LIMITS = Limits(max_request_bytes=1000, max_tokens_limit=100)


def refused(request: dict[str, object]) -> str:
    with pytest.raises(InvalidRequest) as caught:
        parse_ask(request, LIMITS)
    return str(caught.value.details["path"])


def test_a_bare_prompt_reads_as_the_configured_defaults() -> None:
    limits = Limits(sampling=Sampling(temperature=0.1, repeat_last_n=9))
    assert parse_ask({"prompt": "hi"}, limits) == Ask(prompt="hi", sampling=limits.sampling)


def test_limits_come_from_configuration() -> None:
    assert Limits.of(Config()) == Limits()


def test_every_key_arrives() -> None:
    ask = parse_ask(
        {
            "prompt": "hi", "raw": True, "model": "m", "max_tokens": 5, "temperature": 1,
            "top_p": 0.5, "top_k": 3, "min_p": 0.1, "repeat_penalty": 1.1, "seed": 7,
            "stop": ["a", "b"], "reasoning": False,
        },
        LIMITS,
    )  # fmt: skip
    assert ask == Ask(
        prompt="hi", raw=True, model="m", max_tokens=5, stop=("a", "b"), reasoning=False,
        sampling=Sampling(
            temperature=1.0, top_k=3, top_p=0.5, min_p=0.1, repeat_penalty=1.1, seed=7
        ),
    )  # fmt: skip


def test_one_stop_string_needs_no_list() -> None:
    assert parse_ask({"prompt": "x", "stop": "END"}, LIMITS).stop == ("END",)


def test_system_becomes_the_first_message() -> None:
    ask = parse_ask({"prompt": "hi", "system": "be brief"}, LIMITS)
    assert ask.prompt == ""
    assert ask.messages == (Message("system", "be brief"), Message("user", "hi"))
    messages = [{"role": "user", "content": "hi"}]
    assert parse_ask({"messages": messages, "system": "be brief"}, LIMITS) == ask


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        ({}, "request.prompt"),
        ({"prompt": ""}, "request.prompt"),
        ({"prompt": "x", "messages": []}, "request.messages"),
        ({"messages": []}, "request.messages"),
        ({"messages": [{"role": "user", "content": ""}]}, "request.messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "request.messages[0].role"),
        ({"messages": [{"role": "user"}]}, "request.messages[0].content"),
        ({"messages": [{"role": "user", "content": "x", "nick": "y"}]}, "request.messages[0].nick"),
        ({"messages": "hi"}, "request.messages"),
        ({"prompt": 5}, "request.prompt"),
        ({"prompt": "a\0b"}, "request.prompt"),
        ({"prompt": "a\ud800b"}, "request.prompt"),
        ({"prompt": "x" * 1001}, "request.prompt"),
        ({"prompt": "x", "temp": 1.0}, "request.temp"),
        ({"prompt": "x", "temperature": float("nan")}, "request.temperature"),
        ({"prompt": "x", "temperature": -0.1}, "request.temperature"),
        ({"prompt": "x", "temperature": 10**400}, "request.temperature"),
        ({"prompt": "x", "seed": 10**400}, "request.seed"),
        ({"prompt": "x", "lora": {"a": 10**400}}, "request.lora.a"),
        ({"prompt": "x", "temperature": True}, "request.temperature"),
        ({"prompt": "x", "max_tokens": 0}, "request.max_tokens"),
        ({"prompt": "x", "max_tokens": 101}, "request.max_tokens"),
        ({"prompt": "x", "max_tokens": 5.0}, "request.max_tokens"),
        ({"prompt": "x", "seed": 2**32}, "request.seed"),
        ({"prompt": "x", "stop": [""]}, "request.stop[0]"),
        ({"prompt": "x", "stop": ["ok", 5]}, "request.stop[1]"),
        ({"prompt": "x", "stop": ["s"] * 17}, "request.stop"),
        ({"prompt": "x", "stop": "s" * 257}, "request.stop[0]"),
        ({"prompt": "x", "raw": True, "system": "y"}, "request.raw"),
        ({"prompt": "x", "raw": "yes"}, "request.raw"),
        (
            {"messages": [{"role": "system", "content": "a"}], "system": "b"},
            "request.system",
        ),
    ],
)
def test_a_wrong_key_is_refused_by_its_path(request_: dict[str, object], path: str) -> None:
    assert refused(request_) == path


def test_delivery_reads_milliseconds_and_refuses_the_rest() -> None:
    assert parse_delivery({}) == Delivery()
    assert parse_delivery({"format": "text", "deadline_ms": 1500}) == Delivery("text", 1.5)  # type: ignore[arg-type]
    assert parse_delivery({"class": "background"}).job_class is JobClass.BACKGROUND
    for options in ({"format": "xml"}, {"deadline_ms": 0}, {"deadline": 5}, {"class": "NORMAL"}):
        with pytest.raises(InvalidRequest, match=r"options\."):
            parse_delivery(options)


def test_an_empty_text_may_be_tokenized_but_not_asked() -> None:
    assert parse_text("") == ""
    with pytest.raises(InvalidRequest):
        parse_question("", LIMITS)


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.just(10**400)
    | st.floats()
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
_KEYS = st.sampled_from(
    [
        "prompt",
        "messages",
        "system",
        "raw",
        "stop",
        "seed",
        "top_k",
        "top_p",
        "min_p",
        "lora",
        "model",
        "bogus",
    ]
)


# The first run on a machine builds hypothesis' table of characters, which takes seconds.
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.dictionaries(_KEYS, _VALUES, max_size=5))
def test_any_request_is_parsed_or_refused_with_a_path(request_: dict[str, object]) -> None:
    path: object = "fine"
    try:
        ask = parse_ask(request_, LIMITS)
        assert ask.prompt or ask.messages
    except InvalidRequest as error:
        path = error.details["path"]
    assert path
