"""Several models in one stokerd: aliases, changing, sleeping; over D-Bus and stokerctl."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gi.repository import GLib
from tests.integration.stokerd_rig import Stokerd, Stream, echoes, until

from stoker import errors
from stoker.api import contract
from stoker.tour.private_bus import PrivateBus

pytestmark = pytest.mark.bus

Start = Callable[..., Stokerd]


@pytest.fixture
def start(private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str]) -> Iterator[Start]:
    """stokerd with models "a" (default) and "b", called "bee" too; lines for [swap]."""

    def begin(swap: str = "") -> Stokerd:
        models = ""
        for name, more in (("a", ""), ("b", 'aliases = ["bee"]\n'), ("broken", "")):
            file = tmp_path / f"{'crash-on-load' if name == 'broken' else name}.gguf"
            file.write_bytes(b"not a model")
            models += f'[models.{name}]\npath = "{file}"\n{more}'
        config = f'[models]\ndefault = "a"\n{models}[swap]\n{swap}'
        return daemon_on(config)

    with echoes(private_bus, tmp_path, child_env) as daemon_on:
        yield begin


def select(daemon: Stokerd, name: str) -> dict[str, object]:
    found: dict[str, object] = daemon.client.call(
        contract.AGENT, "SelectModel", GLib.Variant("(s)", (name,)), timeout_ms=60_000
    )
    return found


def states(daemon: Stokerd) -> dict[str, str]:
    return {m["name"]: m["state"] for m in daemon.client.call(contract.INFERENCE, "ListModels")}


def test_select_model_answers_when_the_new_one_serves_and_jobs_go_on(start: Start) -> None:
    daemon = start("drain_timeout_s = 20.0\n")
    words = " ".join(f"w{number}" for number in range(40))
    _, fd = daemon.client.create_job(f"!slow 20 {words}")
    stream = Stream(fd)
    stream.until_text()
    result = select(daemon, "bee")
    assert (result["model"], result["previous"], result["preempted"]) == ("b", "a", 0)
    text = "".join(record.get("t", "") for record in stream.rest())
    assert text.split() == words.split()[1:]
    assert states(daemon) == {"a": "idle", "b": "ready", "broken": "idle"}
    assert daemon.status()["model"] == "b"
    assert daemon.client.ask("still here") == "still here"


def test_the_selected_model_is_there_again_after_a_restart(start: Start) -> None:
    first = start()
    select(first, "bee")
    first.stop()
    assert start().status()["model"] == "b"


def test_a_model_that_crashes_is_told_and_the_old_one_serves_on(start: Start) -> None:
    daemon = start()
    with pytest.raises(errors.ModelUnavailable, match="broken"):
        select(daemon, "broken")
    daemon.wait_ready()
    assert daemon.status()["model"] == "a"
    assert states(daemon)["broken"] == "set-aside"
    with pytest.raises(errors.ModelUnavailable, match="none of this name"):
        select(daemon, "nobody")


def test_a_request_brings_its_model_in_where_policy_lets_it(start: Start) -> None:
    daemon = start('policy = "when-idle"\n')
    _, fd = daemon.client.create_job("for the bee", model=GLib.Variant("s", "bee"))
    assert "".join(r.get("t", "") for r in Stream(fd).rest()) == "for the bee"
    assert daemon.status()["model"] == "b"


def test_an_idle_model_sleeps_and_wakes_for_the_next_question(start: Start) -> None:
    daemon = start("keep_alive_s = 0.5\n")
    until(lambda: daemon.status()["state"] == "asleep", "asleep")
    until(lambda: daemon.status()["runner_pid"] == 0, "the runner's end")
    assert daemon.status()["state"] == "asleep"
    assert daemon.client.ask("good morning") == "good morning"
    until(lambda: daemon.status()["state"] == "asleep", "asleep again")
    assert daemon.status()["runner_restarts"] == 0


def test_stokerctl_uses_another_model_and_says_so(start: Start, child_env: dict[str, str]) -> None:
    daemon = start()
    command = [sys.executable, "-m", "stoker.cli.main", "--bus", daemon.bus.address, "models"]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *words],
            env=child_env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    done = run("use", "bee")
    assert done.returncode == 0, done.stderr
    assert "Model b is used now, instead of a" in done.stdout
    assert "in use already" in run("use", "b").stdout
    assert json.loads(run("--json", "use", "a").stdout)["model"] == "a"
    assert "b (bee)" in run().stdout
    assert run("use").returncode == 64
    assert run("use", "broken").returncode == 69
