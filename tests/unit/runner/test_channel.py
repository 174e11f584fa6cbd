"""The socket side of the runner: order, bad bodies, an agent that does not read."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from stoker.core import frames
from stoker.events.prompt import ToolCall
from stoker.events.runner import Answer, Cancel, Delta, Deltas, Ping, parse_event, to_body
from stoker.runner import channel as module
from stoker.runner.channel import Broken, Channel, ChannelLostError, Closed, Letter, Rejected


class Side:
    def __init__(self) -> None:
        self.agent, runner = socket.socketpair()
        self.noted: list[Letter] = []
        self.channel = Channel(runner, self.noted.append)

    def say(self, data: bytes) -> Letter | None:
        self.agent.sendall(data)
        return self.channel.next(5.0)


@pytest.fixture
def side() -> Iterator[Side]:
    made = Side()
    yield made
    made.agent.close()


def test_letters_come_in_order_and_are_noted_first(side: Side) -> None:
    side.channel.start()
    data = b"".join(frames.encode(to_body(item)) for item in (Ping(1), Cancel("a"), Ping(2)))
    assert side.say(data) == Ping(1)
    assert [side.channel.next(5.0), side.channel.next(5.0)] == [Cancel("a"), Ping(2)]
    assert side.noted == [Ping(1), Cancel("a"), Ping(2)]
    assert side.channel.next(0.0) is None


def test_end_of_file_is_a_letter(side: Side) -> None:
    side.channel.start()
    side.agent.close()
    assert side.channel.next(5.0) == Closed()


@pytest.mark.parametrize(
    "body", [{"k": "generate", "job": "j", "x": 1}, {"k": "stats", "id": "q", "x": 1}]
)
def test_bad_request_with_a_name_is_rejected_by_it(side: Side, body: dict[str, object]) -> None:
    side.channel.start()
    letter = side.say(frames.encode(body))
    assert isinstance(letter, Rejected)
    assert (letter.job or letter.query) in ("j", "q")


def test_bad_request_without_a_name_breaks_the_stream(side: Side) -> None:
    side.channel.start()
    assert isinstance(side.say(frames.encode({"k": "ping", "seq": "one"})), Broken)


def test_agent_that_does_not_read_is_given_up(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WRITE_LIMIT_S", 0.02)
    with pytest.raises(ChannelLostError) as caught:
        side.channel.send(Answer("a", {"text": "x" * 10_000_000}))
    assert caught.value.full


def test_write_to_a_closed_agent_is_a_loss_not_a_signal(side: Side) -> None:
    side.agent.close()
    with pytest.raises(ChannelLostError) as caught:
        side.channel.send(Answer("a", {}))
    assert not caught.value.full


def test_full_socket_loses_nothing_once_it_is_read(side: Side) -> None:
    wanted = 400
    got: list[frames.Body] = []

    def read() -> None:
        decoder = frames.FrameDecoder()
        while len(got) < wanted:
            got.extend(decoder.feed(side.agent.recv(4096)))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(wanted):
        side.channel.send(Answer(str(number), {"text": "y" * 5_000}))
    reader.join(10)
    assert [body["id"] for body in got] == [str(number) for number in range(wanted)]


@pytest.mark.parametrize(
    "items",
    [
        (Delta("a", t="x"),),
        (Delta("a", t="x", n=3), Delta("b", n=1)),
        (Delta("a", t="x", n=1, e=9),),
        (Delta("a", t='qu"ote \\ \n \u2028 🔥 \x01'), Delta('b"', t="")),
        (Delta("lone \ud800", t="x"),),
        (Delta("a", t="x", r="y"), Delta("b", p=(1, 2))),
        (Delta("a", t="x", lp={"content": [{"token": "x"}]}),),
        (Delta("a", t="x", tools=(ToolCall("1", "sum", "{}"),)),),
        (Delta("a", done={"finish_reason": "stop"}),),
        (Delta("a", error={"code": "busy"}),),
    ],
)
def test_short_cut_for_texts_says_what_the_long_way_says(
    side: Side, items: tuple[Delta, ...]
) -> None:
    side.channel.send(Deltas(items))
    (body,) = frames.FrameDecoder().feed(side.agent.recv(65536))
    assert parse_event(body) == Deltas(items)
