"""The client's half of a stream, on an ordinary pipe and a bus that only counts cancels."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker_client import requests
from stoker_client.bus import Bus
from stoker_client.errors import StokerClientError
from stoker_client.records import Lines, Record, parse
from stoker_client.stream import Stream

DONE = b'{"done":{"finish_reason":"stop","usage":{"prompt_tokens":3},"timings":{}}}\n'


class _Bus:
    def __init__(self) -> None:
        self.cancelled: list[str] = []

    def cancel_job(self, job: str) -> None:
        self.cancelled.append(job)


Opened = tuple[Stream, int, _Bus]


@pytest.fixture
def opened() -> Opened:
    reader, writer = os.pipe()
    bus = _Bus()
    return Stream(cast(Bus, bus), "/job", reader), writer, bus


def test_records_come_in_order_and_the_last_one_ends_it(opened: Opened) -> None:
    stream, writer, bus = opened
    os.write(writer, b'{"p":{"done":1,"total":2}}\n{"r":"hm"}\n{"t":"a')
    os.write(writer, b'\\n"}\n{"new":{}}\n' + DONE + b'{"t":"after"}\n')
    kinds = [(r.kind, r.text, r.done) for r in stream]
    assert kinds == [
        ("progress", "", 1),
        ("reasoning", "hm", 0),
        ("text", "a\n", 0),
        ("other", "", 0),
        ("done", "", 0),
    ]
    stream.close()
    assert bus.cancelled == []
    with pytest.raises(BrokenPipeError):
        os.write(writer, b"x")


def test_an_error_line_is_raised_with_its_code(opened: Opened) -> None:
    stream, writer, bus = opened
    os.write(writer, b'{"t":"a"}\n{"error":{"code":"throttled","message":"hot","hint":"cool"}}\n')
    assert next(stream).text == "a"
    with pytest.raises(StokerClientError, match="hot") as caught:
        next(stream)
    assert (caught.value.code, caught.value.hint, caught.value.retryable) == (
        "throttled",
        "cool",
        True,
    )
    assert list(stream) == []
    assert bus.cancelled == []


def test_the_end_without_a_last_line_means_the_engine_failed(opened: Opened) -> None:
    stream, writer, _ = opened
    os.write(writer, b'{"t":"a"}\n{"t":"hal')
    os.close(writer)
    assert next(stream).text == "a"
    with pytest.raises(StokerClientError) as caught:
        next(stream)
    assert caught.value.code == "engine-failed"


def test_leaving_early_closes_the_pipe_and_cancels_once(opened: Opened) -> None:
    stream, writer, bus = opened
    os.write(writer, b'{"t":"a"}\n')
    with stream:
        next(stream)
    stream.close()
    assert bus.cancelled == ["/job"]
    with pytest.raises(BrokenPipeError):
        os.write(writer, b"x")


def test_a_forgotten_stream_closes_its_pipe() -> None:
    reader, writer = os.pipe()
    bus = _Bus()
    stream = Stream(cast(Bus, bus), "/job", reader)
    del stream
    with pytest.raises(BrokenPipeError):
        os.write(writer, b"x")
    assert bus.cancelled == []  # no call on the bus from a finaliser


def test_wait_says_whether_something_is_there(opened: Opened) -> None:
    stream, writer, _ = opened
    assert not stream.wait(0)
    os.write(writer, b'{"t":"a"}\n')
    assert stream.wait(0)


@pytest.mark.parametrize("line", [b"nonsense", b"[]", b"3", b"\xff\xfe"])
def test_a_line_that_is_no_record_ends_the_stream(opened: Opened, line: bytes) -> None:
    stream, writer, _ = opened
    os.write(writer, line + b"\n")
    with pytest.raises(StokerClientError) as caught:
        next(stream)
    assert caught.value.code == "engine-failed"
    with pytest.raises(BrokenPipeError):
        os.write(writer, b"x")


@given(st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\n", b"")), max_size=8), st.data())
def test_lines_do_not_depend_on_how_they_are_cut(lines: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(line + b"\n" for line in lines)
    cut = data.draw(st.integers(0, len(whole)))
    splitter = Lines()
    found = [*splitter.feed(whole[:cut]), *splitter.feed(whole[cut:])]
    assert found == [line for line in lines if line]


def test_done_gives_its_inner_tables() -> None:
    record = parse(DONE)
    assert record.finish_reason == "stop"
    assert record.inner("usage") == {"prompt_tokens": 3}
    assert Record("done", data={"done": 3}).inner("usage") == {}


def test_options_become_typed_pairs() -> None:
    request, delivery = requests.build(
        "hi", {"max_tokens": 3, "stop": ["a", "b"], "raw": True, "deadline_s": 1.5}
    )
    assert request == {
        "prompt": ("s", "hi"),
        "max_tokens": ("x", 3),
        "stop": ("as", ["a", "b"]),
        "raw": ("b", True),
    }
    assert delivery == {"format": ("s", "ndjson"), "deadline_ms": ("x", 1500)}


def test_messages_replace_the_prompt() -> None:
    request, _ = requests.build([{"role": "user", "content": "hi"}], {})
    assert request == {"messages": ("aa{ss}", [{"role": "user", "content": "hi"}])}


@pytest.mark.parametrize("bad", ["a\0b", "a\udc80b"])
@pytest.mark.parametrize(
    "build",
    [
        lambda bad: requests.build(bad, {}),
        lambda bad: requests.build([{"role": "user", "content": bad}], {}),
        lambda bad: requests.build("x", {"system": bad}),
        lambda bad: requests.build("x", {"stop": ["ok", bad]}),
    ],
)
def test_text_that_d_bus_cannot_carry_is_refused(build: Callable[[str], Any], bad: str) -> None:
    with pytest.raises(StokerClientError) as caught:
        build(bad)
    assert caught.value.code == "invalid-request"


def test_a_misspelt_option_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="max_token"):
        requests.build("x", {"max_token": 3})  # type: ignore[typeddict-unknown-key]
