"""stokerctl against a real stokerd: loading, reasoning, interruption, a runner that dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.stokerctl_rig import COMMAND, Typed, ctl
from tests.integration.stokerd_rig import Stokerd, stokerd, until

from stoker.tour.private_bus import PrivateBus

pytestmark = pytest.mark.bus
Env = dict[str, str]


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory, child_env: Env) -> Iterator[Stokerd]:
    home = tmp_path_factory.mktemp("agent")
    model = "[models.echo]\npath = '/nonexistent/echo.gguf'\n"
    config = f"[restart]\ncrash_limit = 100\n[models]\ndefault = 'echo'\n{model}"
    with (
        PrivateBus() as bus,
        stokerd(bus, home, child_env, "--engine", "echo", config=config) as running,
    ):
        running.wait_ready()
        yield running


@pytest.fixture
def env(agent: Stokerd, child_env: Env) -> Env:
    return {**child_env, "STOKER_BUS_ADDRESS": agent.bus.address}


def test_a_question_gets_its_answer(env: Env) -> None:
    done = ctl(env, "ask", "--stats", "wood", "and", "coal")
    assert (done.returncode, done.stdout) == (0, "wood and coal\n")
    assert "3 prompt tokens" in done.stderr


def test_reasoning_is_kept_apart(env: Env) -> None:
    assert ctl(env, "ask", "!think of this").stdout.strip() == "of this"
    shown = ctl(env, "ask", "--reasoning", "!think of this").stdout
    assert shown.split() == ["hm,", "well", "of", "this"]
    kinds = [
        next(iter(json.loads(line)))
        for line in ctl(env, "--json", "ask", "!think of this").stdout.splitlines()
    ]
    assert kinds.index("r") < kinds.index("t") < kinds.index("done")


def test_reasoning_on_a_terminal_is_dim(env: Env) -> None:
    env = {key: value for key, value in env.items() if key != "NO_COLOR"}
    with Typed(env, *COMMAND, "ask", "!think of this") as typed:
        typed.see("hm,.*of this")
        assert typed.end() == 0
        assert "\x1b[2m" in typed.seen


def test_text_arrives_while_it_is_made(env: Env) -> None:
    child = subprocess.Popen(
        [*COMMAND, "ask", "!slow 300 one two three four five"],
        env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    first = os.read(child.stdout.fileno(), 100)
    at = time.monotonic()
    rest = child.stdout.read()
    assert first.strip() == b"one"
    assert time.monotonic() - at > 0.8
    assert (first + rest).split() == [b"one", b"two", b"three", b"four", b"five"]
    assert child.wait(10) == 0


def test_ctrl_c_frees_the_engine(env: Env, agent: Stokerd) -> None:
    child = subprocess.Popen(
        [*COMMAND, "ask", "!long 1000000"],
        env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    os.read(child.stdout.fileno(), 100)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=10)
    assert (child.returncode, err) == (130, b"")
    end = time.monotonic() + 3
    while agent.status()["active_jobs"]:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_deadline_has_its_own_status(env: Env) -> None:
    done = ctl(env, "ask", "--timeout", "0.3", "!slow 200 a b c d e f g h i j")
    assert done.returncode == 124
    assert "stokerctl: cannot" in done.stderr


def test_a_runner_that_dies_is_told_and_the_next_question_waits(env: Env, agent: Stokerd) -> None:
    child = subprocess.Popen(
        [*COMMAND, "ask", "!slow 100 a b c d e f g h i j"],
        env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    os.read(child.stdout.fileno(), 100)
    agent.runner().kill()
    done = ctl(env, "ask", "next one")
    _, err = child.communicate(timeout=10)
    assert child.returncode == 76
    assert b"killed by signal 9" in err
    assert (done.returncode, done.stdout) == (0, "next one\n")


def test_a_conversation_goes_with_every_question(env: Env) -> None:
    done = ctl(env, "chat", "--system", "be brief", stdin="first\nsecond\n")
    assert (done.returncode, done.stdout) == (0, "first\nsecond\n")


def test_no_model_is_said_with_a_hint(
    private_bus: PrivateBus, tmp_path: Path, child_env: Env
) -> None:
    with stokerd(private_bus, tmp_path, child_env):
        done = ctl(child_env, "--bus", private_bus.address, "ask", "x")
        assert done.returncode == 69
        assert "model" in done.stderr
        status = ctl(child_env, "--bus", private_bus.address, "status")
        assert (status.returncode, "no-model" in status.stdout) == (0, True)


def test_every_verb_that_needs_the_model_wakes_it_and_waits(tmp_path: Path, child_env: Env) -> None:
    model = "[models.echo]\npath = '/nonexistent/echo.gguf'\n"
    config = f"[swap]\nkeep_alive_s = 1.0\n{model}"
    with (
        PrivateBus() as bus,
        stokerd(bus, tmp_path, child_env, "--engine", "echo", config=config) as running,
    ):
        env = {**child_env, "STOKER_BUS_ADDRESS": bus.address}
        for words in (["tokens", "wood"], ["tokens", "--ids", "wood"], ["embed", "wood"]):
            until(lambda: running.status()["state"] == "asleep", running.text())
            done = ctl(env, *words)
            assert (done.returncode, done.stderr) == (0, ""), words
            assert done.stdout
        assert running.status()["runner_restarts"] == 0
