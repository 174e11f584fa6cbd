"""Classes and quotas over a real bus with the echo engine: who is paused, passed, refused."""

from __future__ import annotations

import json
import os
import pwd
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from gi.repository import GLib
from tests.integration.stokerd_rig import Stokerd, Stream, stokerd, until

from stoker import errors
from stoker.api import contract
from stoker.tour.private_bus import PrivateBus

NOBODY, DAEMON = 65534, 1  # users of every Debian
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can call as another user")

SETTINGS = f"""
[runner]
stop_timeout_s = 1.0
slots = 1
[models.echo]
path = "/dev/null"
[users.{pwd.getpwuid(NOBODY).pw_name}]
highest_class = "normal"
queued_jobs = 5
"""

pytestmark = pytest.mark.bus


@pytest.fixture
def daemon(private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str]) -> Iterator[Stokerd]:
    with stokerd(private_bus, tmp_path, child_env, "--engine", "echo", config=SETTINGS) as running:
        running.wait_ready()
        yield running


def in_class(word: str) -> GLib.Variant:
    return GLib.Variant("s", word)


def come_by_now(fd: int) -> bytes:
    """What the pipe holds, without waiting."""
    os.set_blocking(fd, False)
    try:
        return os.read(fd, 1 << 20)
    except BlockingIOError:
        return b""


def test_an_interactive_job_pauses_a_streaming_background_job_which_goes_on_afterwards(
    daemon: Stokerd,
) -> None:
    said = [f"w{n}" for n in range(60)]
    job, fd = daemon.client.create_job(
        "!slow 20 " + " ".join(said), option_class=in_class("background")
    )
    until(lambda: daemon.client.call(contract.JOB, "GetResult", path=job)["text"], "a word")
    _, quick_fd = daemon.client.create_job(
        "!slow 20 " + "q " * 25, option_class=in_class("interactive")
    )
    quick = Stream(quick_fd)
    quick.until_text()  # so the other one stands still
    before = come_by_now(fd)
    assert daemon.client.get(contract.JOB, "Class", job) == "background"
    assert daemon.client.get(contract.JOB, "State", job) == "running"
    assert daemon.client.get(contract.JOB, "EtaSeconds", job) > 0.0
    words = "".join(record.get("t", "") for record in quick.rest()).split()
    assert len(words) == 24
    meanwhile = come_by_now(fd)
    assert meanwhile.count(b"\n") <= 2  # half a second is 12 frames for one that was not paused
    after = b"".join(json.dumps(record).encode() + b"\n" for record in Stream(fd).rest())
    records = [json.loads(line) for line in (before + meanwhile + after).splitlines()]
    assert "".join(record.get("t", "") for record in records).split() == said
    assert records[-1]["done"]["finish_reason"] == "stop"


def test_a_job_says_its_class_place_and_time(daemon: Stokerd) -> None:
    _, running = daemon.client.create_job("!slow 20 " + "a " * 500)
    job, waiting = daemon.client.create_job("next")
    found = daemon.client.get_all(contract.JOB, job)
    assert (found["State"], found["Class"], found["QueuePosition"]) == ("queued", "normal", 1)
    assert found["EtaSeconds"] > 0.0
    os.close(running)
    os.close(waiting)


def test_a_word_that_is_no_class_is_refused_by_its_path(daemon: Stokerd) -> None:
    with pytest.raises(errors.InvalidRequest) as caught:
        daemon.client.create_job("hi", option_class=in_class("urgent"))
    assert caught.value.details["path"] == "options.class"


def call_as(daemon: Stokerd, uid: int, method: str, *args: str) -> subprocess.Popen[str]:
    command = ["gdbus", "call", "--address", daemon.bus.address, "--dest", contract.BUS_NAME]
    command += ["--object-path", contract.AGENT_PATH, "--timeout", "60"]
    command += ["--method", f"{contract.INFERENCE}.{method}", *args]
    return subprocess.Popen(
        command, user=uid, group=uid, extra_groups=[], cwd="/", text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@AS_ROOT
def test_three_users_share_one_slot_and_none_waits_for_all_jobs_of_another(
    daemon: Stokerd,
) -> None:
    _, held = daemon.client.create_job("!slow 20 " + "a " * 3000)
    flood = [call_as(daemon, NOBODY, "Ask", "!slow 40 " + "n " * 10) for _ in range(5)]
    until(lambda: daemon.status()["queue_depth"] == 5, "five of them wait", 20.0)
    late = call_as(daemon, DAEMON, "Ask", "!slow 40 " + "d " * 10)
    until(lambda: daemon.status()["queue_depth"] == 6, "the other user waits too", 20.0)
    os.close(held)
    late.wait(60)
    assert "d d" in late.communicate()[0]
    done = sum(child.poll() is not None for child in flood)
    assert daemon.status()["queue_depth"] >= 2
    assert done <= 3
    for child in flood:
        assert "n n" in child.communicate(timeout=60)[0]


@AS_ROOT
def test_a_user_over_quota_is_refused_by_name_while_others_are_served(daemon: Stokerd) -> None:
    _, held = daemon.client.create_job("!slow 20 " + "a " * 3000)
    flood = [call_as(daemon, NOBODY, "Ask", "n") for _ in range(5)]
    until(lambda: daemon.status()["queue_depth"] == 5, "five of them wait", 20.0)
    error = call_as(daemon, NOBODY, "Ask", "n").communicate(timeout=20)[1]
    assert "org.stoker.Error.QuotaExceeded" in error
    details = json.loads(re.search(r"details: ({.*?})", error)[1])  # type: ignore[index]
    assert details["quota"] == "queued_jobs"
    assert details["retry_after_ms"] >= 1000
    job, other = daemon.client.create_job("served")
    assert daemon.client.get(contract.JOB, "State", job) == "queued"
    os.close(held)
    assert Stream(other).rest()[-1]["done"]["finish_reason"] == "stop"
    for child in flood:
        child.communicate(timeout=60)


@AS_ROOT
def test_a_class_that_policy_keeps_from_a_user_is_not_authorized(daemon: Stokerd) -> None:
    request, options = "{'prompt': <'hi'>}", "{'class': <'interactive'>}"
    error = call_as(daemon, NOBODY, "CreateJob", request, options).communicate(timeout=20)[1]
    assert "org.stoker.Error.NotAuthorized" in error
    assert "the highest you may use is normal" in error
    assert call_as(daemon, NOBODY, "CreateJob", request, "{}").wait(20) == 0


def test_a_reload_brings_new_quotas_to_the_next_job(daemon: Stokerd) -> None:
    text = daemon.config_file.read_text()
    daemon.config_file.write_text(text + "[quotas]\ntokens_per_minute = 10\n")
    assert daemon.client.call(contract.AGENT, "Reload") == []
    assert daemon.client.ask("one two three four five six seven eight") != ""
    with pytest.raises(errors.QuotaExceeded) as caught:
        daemon.client.ask("and now")
    wait_ms = int(caught.value.details["retry_after_ms"])
    assert 5_000 < wait_ms < 60_000
    assert caught.value.details["quota"] == "tokens_per_minute"
