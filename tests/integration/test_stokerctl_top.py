"""stokerctl top against a real stokerd: on a terminal, on a pipe, as JSON."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.stokerctl_rig import COMMAND, Typed, ctl
from tests.integration.stokerd_rig import echoes

from stoker.tour.private_bus import PrivateBus

pytestmark = pytest.mark.bus
Env = dict[str, str]


@pytest.fixture
def env(private_bus: PrivateBus, tmp_path: Path, child_env: Env) -> Iterator[Env]:
    with echoes(private_bus, tmp_path, child_env) as begin:
        begin('[models.echo]\npath = "/dev/null"\n')
        yield {**child_env, "STOKER_BUS_ADDRESS": private_bus.address}


def test_q_leaves_and_the_terminal_is_as_before(env: Env) -> None:
    with Typed(env, *COMMAND, "top", "--seconds", "0.3") as typed:
        typed.see("echo  ready")
        typed.see(r"0\.0 tokens/s")
        typed.enter("q")
        assert typed.end() == 0
        assert "\x1b[?1049l" in typed.seen, "the screen of before is not back"


def test_ctrl_c_leaves_with_its_status(env: Env) -> None:
    with Typed(env, *COMMAND, "top") as typed:
        typed.see("nobody asks")
        typed.enter("\x03")
        assert typed.end() == 130


def test_a_job_is_seen_by_user_and_class_and_its_speed(env: Env) -> None:
    words = "word " * 400
    with Typed(env, *COMMAND, "ask", "--class", "background", f"!slow {words}") as asking:
        asking.see("word")
        found = ctl(env, "--json", "top", "--count", "3", "--seconds", "1.1")
        os.kill(asking.process.pid, signal.SIGTERM)
    looks = [json.loads(line) for line in found.stdout.splitlines()]
    assert len(looks) == 3, found.stderr
    seen = [line for look in looks for line in look["queue"]]
    assert seen
    assert seen[0] == {"uid": os.getuid(), "class": "background", "running": 1, "waiting": 0}
    assert looks[-1]["tokens_s"] is not None
    assert looks[-1]["status"]["sampled_tokens"] > 0


def test_a_pipe_gets_plain_screens(env: Env) -> None:
    found = ctl(env, "top", "--count", "2", "--seconds", "0.1")
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("headroom") == 2
    assert "\x1b" not in found.stdout
