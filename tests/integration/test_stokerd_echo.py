"""stokerd and its runner over a real bus, with the echo engine: life, death and manners."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gi.repository import GLib
from tests.fakes.bus_client import BusClient
from tests.integration.stokerd_rig import Stokerd, Stream, stokerd, until

from stoker import errors
from stoker.api import contract
from stoker.tour.private_bus import PrivateBus

FAST = """
[runner]
heartbeat_timeout_s = 2.0
stop_timeout_s = 1.0
slots = 2
[inference]
queue_limit = 2
[models]
default = "echo"
[models.echo]
path = "/dev/null"
"""

pytestmark = pytest.mark.bus


@pytest.fixture
def daemon(private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str]) -> Iterator[Stokerd]:
    with stokerd(private_bus, tmp_path, child_env, "--engine", "echo", config=FAST) as running:
        running.wait_ready()
        yield running


def test_an_answer_and_a_stream_come_over_the_bus(daemon: Stokerd) -> None:
    assert daemon.client.ask("tell me more") == "tell me more"
    _, fd = daemon.client.create_job("!think one two")
    records = Stream(fd).rest()
    assert "".join(r.get("r", "") for r in records) == "hm, well"
    assert "".join(r.get("t", "") for r in records).strip() == "one two"
    assert records[-1]["done"]["finish_reason"] == "stop"


def test_two_callers_are_served_side_by_side(daemon: Stokerd) -> None:
    with BusClient(daemon.bus.address) as other:
        _, slow = daemon.client.create_job("!slow 30 " + "a " * 200)
        stream = Stream(slow)
        stream.until_text()
        began = time.monotonic()
        assert other.ask("quick") == "quick"
        assert time.monotonic() - began < 2.0
        assert "t" in stream.next()
        os.close(slow)


def test_a_closed_pipe_frees_its_slot(daemon: Stokerd) -> None:
    _, fd = daemon.client.create_job("!slow 20 " + "a " * 3000)
    Stream(fd).until_text()
    assert daemon.status()["active_jobs"] == 1
    os.close(fd)
    until(lambda: daemon.status()["active_jobs"] == 0, "slot free", 2.0)


def test_a_caller_that_vanishes_takes_its_jobs_along(daemon: Stokerd) -> None:
    with BusClient(daemon.bus.address) as caller:
        _, kept_open = caller.create_job("!slow 20 " + "a " * 3000)
        Stream(kept_open).until_text()
    until(lambda: daemon.status()["active_jobs"] == 0, "slot free", 2.0)
    os.close(kept_open)


def test_cancel_ends_a_job_with_a_typed_line(daemon: Stokerd) -> None:
    job, fd = daemon.client.create_job("!slow 20 " + "a " * 3000)
    stream = Stream(fd)
    stream.until_text()
    daemon.client.call(contract.JOB, "Cancel", path=job)
    assert stream.rest()[-1]["error"]["code"] == "cancelled"


def test_kill_9_in_mid_stream_is_told_and_the_runner_is_back(daemon: Stokerd) -> None:
    _, fd = daemon.client.create_job("!slow 20 " + "a " * 3000)
    stream = Stream(fd)
    stream.until_text()
    first = daemon.runner()
    first.kill()
    assert stream.rest()[-1]["error"]["code"] == "engine-failed"
    assert daemon.client.ask("back again") == "back again"
    status = daemon.status()
    assert status["runner_pid"] != first.pid
    assert status["runner_restarts"] == 1


def test_a_runner_hung_in_mid_stream_is_killed_and_replaced(daemon: Stokerd) -> None:
    _, fd = daemon.client.create_job("!slow 20 " + "a " * 3000)
    stream = Stream(fd)
    stream.until_text()
    daemon.runner().suspend()
    error = stream.rest()[-1]["error"]
    assert error["code"] == "engine-failed"
    assert "hung" in error["message"]
    assert daemon.client.ask("back again") == "back again"


def test_a_prompt_that_crashes_the_runner_twice_is_given_up(daemon: Stokerd) -> None:
    with pytest.raises(errors.EngineFailed, match="twice"):
        daemon.client.ask("!crash")
    assert daemon.client.ask("still here", timeout_ms=20_000) == "still here"


def test_a_full_queue_says_busy_and_when_to_come_back(daemon: Stokerd) -> None:
    jobs = [daemon.client.create_job("!slow 50 " + "a " * 1000) for _ in range(4)]
    with pytest.raises(errors.Busy) as caught:
        daemon.client.create_job("one more")
    assert int(caught.value.details["retry_after_ms"]) > 0
    for _, fd in jobs:
        os.close(fd)


def test_no_descriptor_is_left_behind(daemon: Stokerd) -> None:
    def descriptors() -> int:
        return len(list(Path(f"/proc/{daemon.process.pid}/fd").iterdir()))

    daemon.client.ask("warm up")
    before = descriptors()
    for number in range(60):
        _, fd = daemon.client.create_job(f"!long {number}")
        if number % 3:
            os.close(fd)
        else:
            Stream(fd).rest()
    until(lambda: descriptors() <= before + 1, f"descriptors back at {before}", 5.0)


def test_reload_takes_new_limits_and_names_what_needs_a_restart(daemon: Stokerd) -> None:
    text = daemon.config_file.read_text()
    daemon.config_file.write_text(
        text.replace("slots = 2", "slots = 3") + "[sampling]\ntop_k = 5\n"
    )
    assert daemon.client.call(contract.AGENT, "Reload") == ["runner.slots"]
    daemon.config_file.write_text(text + "nonsense = 1\n")
    with pytest.raises(errors.ConfigInvalid, match="nonsense"):
        daemon.client.call(contract.AGENT, "Reload")
    daemon.process.send_signal(signal.SIGHUP)
    until(lambda: daemon.text().count("nonsense") >= 2, "SIGHUP is heard", 5.0)
    assert daemon.client.ask("unchanged") == "unchanged"


def test_restart_runner_replaces_it(daemon: Stokerd) -> None:
    before = daemon.status()["runner_pid"]
    daemon.client.call(contract.AGENT, "RestartRunner")
    until(lambda: daemon.status()["runner_pid"] not in (0, before), "a new runner")
    assert daemon.client.ask("new one") == "new one"


def test_stopping_tells_running_jobs_and_leaves_nothing(daemon: Stokerd) -> None:
    _, fd = daemon.client.create_job("!slow 20 " + "a " * 3000)
    stream = Stream(fd)
    stream.until_text()
    runner = daemon.runner()
    assert daemon.stop() == 0
    assert stream.rest()[-1]["error"]["code"] == "unavailable"
    assert not runner.is_running()


def test_killing_the_daemon_ends_the_runner_too(daemon: Stokerd) -> None:
    runner = daemon.runner()
    daemon.process.kill()
    daemon.process.wait(5)
    until(lambda: not runner.is_running(), "runner gone", 8.0)


def test_a_model_that_crashes_while_loading_is_set_aside_for_the_other(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str]
) -> None:
    config = """
    [models]
    default = "bad"
    [models.bad]
    path = "/tmp/crash-on-load.gguf"
    [models.good]
    path = "/dev/null"
    """
    with stokerd(private_bus, tmp_path, child_env, "--engine", "echo", config=config) as daemon:
        until(lambda: daemon.status()["model"] == "good", "the other model", 30.0)
        models = {m["name"]: m for m in daemon.client.call(contract.INFERENCE, "ListModels")}
        assert models["bad"]["state"] == "set-aside"
        assert "3 crashes" in models["bad"]["reason"]
        assert daemon.client.ask("fine") == "fine"


def test_without_a_model_the_service_runs_and_says_why_it_cannot_answer(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str]
) -> None:
    with stokerd(private_bus, tmp_path, child_env) as daemon:
        assert daemon.status()["state"] == "no-model"
        with pytest.raises(errors.ModelUnavailable, match="no model is configured"):
            daemon.client.ask("anyone?")


def test_unknown_options_are_refused_by_name(daemon: Stokerd) -> None:
    with pytest.raises(errors.InvalidRequest, match="temprature"):
        daemon.client.create_job("hi", temprature=GLib.Variant("d", 1.0))
