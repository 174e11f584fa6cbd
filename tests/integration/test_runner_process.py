"""The runner as a process, on the echo engine: frames, faults, heartbeat, end of life."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Iterator

import pytest
from bench.runner_client import RunnerClient, text

from stoker.core import frames
from stoker.events.prompt import Message
from stoker.events.runner import (
    Answer,
    ApplyTemplate,
    Beat,
    Deltas,
    Failed,
    Generate,
    Load,
    Ping,
    Score,
    SetThreads,
    Stats,
    Tokenize,
    Unload,
)


@pytest.fixture
def echo() -> Iterator[RunnerClient]:
    with RunnerClient("echo", "--echo-faults") as client:
        client.hello()
        client.load("echo", slots=2)
        yield client


def test_first_word_is_hello_and_last_is_exit_0() -> None:
    client = RunnerClient("echo")
    hello = client.hello()
    assert (hello.engine, hello.pid) == ("echo", client.process.pid)
    assert client.close() == 0


def test_words_come_back_one_a_step(echo: RunnerClient) -> None:
    # slower than runner/gather.py puts steps together
    deltas = echo.ask(Generate("a", prompt="!slow 40 never let the fire die"))
    assert text(deltas) == " never let the fire die"
    assert len(deltas) == 6
    assert deltas[-1].done is not None


def test_thought_is_apart_from_the_answer(echo: RunnerClient) -> None:
    deltas = echo.ask(Generate("a", prompt="!think yes"))
    assert text(deltas).strip() == "yes"
    assert "".join(item.r for item in deltas) == "hm, well"


def test_queries_are_answered(echo: RunnerClient) -> None:
    results = [
        echo.answer(query)
        for query in (
            Tokenize("t", "a b a"),
            ApplyTemplate("m", (Message("user", "hi"),)),
            Score("s", "a b"),
            SetThreads("n", 2, 2),
            Stats("x"),
            Unload("u"),
        )
    ]
    assert all(isinstance(result, Answer) for result in results)


def test_without_a_model_everything_is_model_unavailable() -> None:
    with RunnerClient("echo") as client:
        client.hello()
        result = client.answer(Tokenize("t", "a"))
        assert isinstance(result, Failed)
        assert result.code == "model-unavailable"
        (delta,) = client.ask(Generate("j", prompt="x"))
        assert delta.error is not None
        assert delta.error["code"] == "model-unavailable"


@pytest.mark.parametrize(
    ("prompt", "signum"), [("!crash", signal.SIGABRT), ("!oom", signal.SIGKILL)]
)
def test_faulty_prompt_kills_the_process_by_its_signal(
    echo: RunnerClient, prompt: str, signum: int
) -> None:
    echo.send(Generate("a", prompt=prompt))
    assert echo.process.wait(10) == -signum


def test_hang_stops_the_heartbeat_and_end_of_file_still_ends_it(echo: RunnerClient) -> None:
    echo.send(Generate("a", prompt="!hang"))
    with contextlib.suppress(TimeoutError):
        echo.next(1.0)  # a beat that was under way may still come
    with pytest.raises(TimeoutError):
        echo.next(1.5)
    assert echo.close() == 0


def test_faults_are_off_unless_asked_for() -> None:
    with RunnerClient("echo") as client:
        client.hello()
        client.load("echo")
        assert text(client.ask(Generate("a", prompt="!crash"))) == "!crash"


def test_model_that_crashes_on_load_takes_the_process() -> None:
    with RunnerClient("echo", "--echo-faults") as client:
        client.hello()
        client.send(Load("l", "m", "crash-on-load.gguf"))
        assert client.process.wait(10) == -signal.SIGABRT


def _beats(echo: RunnerClient, for_s: float) -> int:
    until_s = time.monotonic() + for_s
    beats = 0
    while (left_s := until_s - time.monotonic()) > 0:
        try:
            beats += isinstance(echo.next(left_s), Beat)
        except TimeoutError:
            break
    return beats


def test_an_idle_runner_beats_by_itself_and_answers_each_ping_with_a_beat(
    echo: RunnerClient,
) -> None:
    assert _beats(echo, 3.5) >= 1
    time.sleep(0.6)  # it does not beat twice in half a second, whoever asks
    echo.send(Ping(7))
    answer = echo.next(2.0)
    assert isinstance(answer, Beat)
    assert answer.seq == 7


def test_no_ping_stops_decoding_until_pings_come_again() -> None:
    with RunnerClient("echo", pings=True) as client:
        client.hello()
        client.load("echo")
        client.send(Ping(1))
        client.send(Generate("a", prompt="!slow 100 " + "x " * 150, max_tokens=150))
        silent_s = 0.0
        last_s = time.monotonic()
        while silent_s < 1.2:  # deltas stop about 5 s after the only ping
            if isinstance(client.next(10), Deltas):
                last_s = time.monotonic()
            silent_s = time.monotonic() - last_s
        client.send(Ping(2))
        while not isinstance(client.next(5), Deltas):
            pass
        assert time.monotonic() - last_s < 3.0


@pytest.mark.parametrize(
    "data",
    [b"garbage here, no frame", frames.encode({"k": "nonsense"}), b"SK\x01\x01\xff\xff\xff\xff"],
)
def test_broken_frame_ends_the_runner_with_its_own_status(data: bytes) -> None:
    client = RunnerClient("echo")
    client.hello()
    client.socket.sendall(data)
    assert client.process.wait(10) == 76
    client.socket.close()


def test_request_that_does_not_parse_is_answered_by_name(echo: RunnerClient) -> None:
    echo.socket.sendall(frames.encode({"k": "generate", "job": "j", "surprise": 1}))
    (delta,) = echo.deltas("j")
    assert delta.error is not None
    assert delta.error["code"] == "invalid-request"
    echo.socket.sendall(frames.encode({"k": "tokenize", "id": "t", "text": 5}))
    while not isinstance(event := echo.next(), Failed):
        pass
    assert event.id == "t"


def test_cut_frame_at_end_of_file_is_a_broken_stream() -> None:
    client = RunnerClient("echo")
    client.hello()
    client.socket.sendall(b"SK\x01")
    client.socket.shutdown(socket.SHUT_WR)
    assert client.process.wait(10) == 76
    client.socket.close()


def test_kill_of_the_parent_ends_the_runner() -> None:
    """A forked parent owns the only other end; SIGKILL leaves it no time to say goodbye."""
    read_fd, write_fd = os.pipe()
    parent = os.fork()
    if parent == 0:
        client = RunnerClient("echo")
        client.hello()
        client.load("echo")
        client.send(Generate("a", prompt="!slow 50 " + "x " * 500))
        os.write(write_fd, str(client.process.pid).encode())
        os.close(write_fd)
        time.sleep(60)
        os._exit(1)
    os.close(write_fd)
    runner = int(os.read(read_fd, 32))
    os.close(read_fd)
    runner_fd = os.pidfd_open(runner)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    try:
        assert select.select([runner_fd], [], [], 5.0)[0], "the runner outlived its parent"
    finally:
        os.close(runner_fd)
