"""States of kept conversations under a real stokerd: they outlive it, and go with their session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.integration.stokerd_rig import Stokerd, stokerd, until

from stoker.tour.private_bus import PrivateBus
from stoker_client import Session, Stoker

pytestmark = pytest.mark.bus
Env = dict[str, str]
CONFIG = """
[runner]
state_idle_s = 0.0
[models.echo]
path = "/dev/null"
"""
QUESTION = " ".join(f"word{number}" for number in range(50))


@pytest.fixture
def daemon(private_bus: PrivateBus, tmp_path: Path, child_env: Env) -> Iterator[Stokerd]:
    with stokerd(private_bus, tmp_path, child_env, "--engine", "echo", config=CONFIG) as running:
        running.wait_ready()
        yield running


def files(home: Path) -> list[Path]:
    return list((home / "state" / "runner").glob("*.state"))


def known(session: Session) -> object:
    """Tokens of the question that needed no reading."""
    last = list(session.stream(QUESTION, max_tokens=3))[-1]
    return last.inner("usage")["cached_tokens"]


def runner_again(daemon: Stokerd, old: psutil.Process) -> None:
    def fresh() -> bool:
        status = daemon.status()
        return bool(status["state"] == "ready" and status["runner_pid"] != old.pid)

    until(fresh, "a new runner")


def test_a_conversation_is_known_after_its_runner_was_killed_and_gone_when_deleted(
    daemon: Stokerd, tmp_path: Path
) -> None:
    session = Stoker(daemon.bus.address).session()
    assert known(session) == 0
    assert known(session) == 49
    until(lambda: files(tmp_path), "a saved state")
    runner = daemon.runner()
    runner.kill()
    runner_again(daemon, runner)
    assert known(session) == 49
    session.delete()
    until(lambda: not files(tmp_path), "the state goes with its session")


def test_a_state_whose_session_is_no_more_goes_when_a_runner_starts(
    daemon: Stokerd, tmp_path: Path
) -> None:
    session = Stoker(daemon.bus.address).session()
    known(session)
    (file,) = until(lambda: files(tmp_path), "a saved state")
    spare = tmp_path / "spare"
    os.link(file, spare)
    session.delete()
    until(lambda: not files(tmp_path), "the state goes with its session")
    spare.rename(file)  # as if the runner had been away when it was to be forgotten
    runner = daemon.runner()
    runner.kill()
    runner_again(daemon, runner)
    until(lambda: not files(tmp_path), "what nobody knows is dropped")
