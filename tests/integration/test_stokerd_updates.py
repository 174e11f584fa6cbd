"""Signed updates in a real stokerd on a private bus; the echo engine stands in for llama.cpp."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gi.repository import GLib
from tests.fakes.update_bundles import Operator, copy
from tests.integration import update_rig as rig
from tests.integration.stokerd_rig import Stokerd, Stream, echoes, until

from stoker import errors
from stoker.api import contract
from stoker.tour.private_bus import PrivateBus

pytestmark = pytest.mark.bus
SIZE = 3 << 20
IMPOSSIBLE = '[[health.probes]]\ntext = "plain words"\nmin_nats = 0.0\nmax_nats = 0.001\n'


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Operator:
    """Bundle 1 leads to v2; 2 leads to v3, which no probe passes."""
    made = Operator.found(tmp_path_factory.mktemp("operator"))
    v1, v2, v3 = rig.three_versions(made.home, SIZE)
    made.bundle(1, v1, v2)
    made.bundle(2, v1, v3, IMPOSSIBLE)
    return made


@pytest.fixture
def start(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str], operator: Operator
) -> Iterator[rig.Start]:

    def begin(**updates: object) -> Stokerd:
        return daemon_on(rig.config(operator.home / "v1", operator, **updates))

    with echoes(private_bus, tmp_path, child_env) as daemon_on:
        yield begin


def content(daemon: Stokerd) -> bytes:
    return Path(rig.served_path(daemon)).read_bytes()


def model(operator: Operator, name: str) -> bytes:
    return (operator.home / name).read_bytes()


def test_a_signed_delta_is_verified_applied_tried_and_kept_while_a_client_streams(
    start: rig.Start, operator: Operator
) -> None:
    daemon = start()
    words = " ".join(f"w{number}" for number in range(60))
    _, fd = daemon.client.create_job(f"!slow 20 {words}")
    stream = Stream(fd)
    stream.until_text()
    job = rig.install(daemon, operator.home / "bundle-1")
    assert rig.end(daemon, job)["Error"] == ("", "")
    text = "".join(record.get("t", "") for record in stream.rest())
    assert text.split() == words.split()[1:]
    assert content(daemon) == model(operator, "v2")
    assert daemon.client.ask("still here") == "still here"
    now = rig.rest(daemon)
    assert (now["Current"], now["Previous"], now["Job"]) == (1, 0, "/")
    assert "committed" in [record["what"] for record in rig.history(daemon)]
    assert "deltas are applied in a child" in daemon.text()  # and it says so
    with pytest.raises(errors.InvalidRequest, match="installed already"):
        rig.install(daemon, operator.home / "bundle-1")
    daemon.client.call(contract.AGENT, "SelectModel", GLib.Variant("(s)", ("chat",)))
    assert content(daemon) == model(operator, "v2")  # the name means the installed one


def test_a_restart_serves_what_was_committed_and_a_rollback_the_one_before(
    start: rig.Start, operator: Operator
) -> None:
    daemon = start()
    rig.end(daemon, rig.install(daemon, operator.home / "bundle-1"))
    rig.rest(daemon)
    daemon.stop()
    daemon = start()
    assert content(daemon) == model(operator, "v2")
    assert rig.facts(daemon)["Current"] == 1
    job = str(daemon.client.call(contract.UPDATE, "Rollback"))
    assert rig.end(daemon, job)["State"] == "done"
    assert content(daemon) == model(operator, "v1")
    with pytest.raises(errors.InvalidRequest, match="no earlier set"):
        daemon.client.call(contract.UPDATE, "Rollback")


def test_a_set_that_fails_its_probes_leaves_the_old_one_serving_and_is_remembered(
    start: rig.Start, operator: Operator
) -> None:
    daemon = start()
    runner = daemon.status()["runner_pid"]
    last = rig.end(daemon, rig.install(daemon, operator.home / "bundle-2"))
    assert last["State"] == "failed"
    assert last["Error"][0] == "unhealthy"
    assert "nats a token" in last["Error"][1]
    assert content(daemon) == model(operator, "v1")
    assert daemon.status()["runner_pid"] == runner  # it served all the time
    now = rig.rest(daemon)
    assert now["Current"] == 0
    assert now["LastError"][0] == "unhealthy"
    with pytest.raises(errors.Unhealthy, match="failed here before"):
        rig.install(daemon, operator.home / "bundle-2")
    job = rig.install(daemon, operator.home / "bundle-2", force=GLib.Variant("b", True))
    assert rig.end(daemon, job)["Error"][0] == "unhealthy"


def test_requests_that_name_the_model_are_answered_though_an_update_of_it_fails(
    start: rig.Start, operator: Operator
) -> None:
    daemon = start()
    words = " ".join(f"w{number}" for number in range(80))
    named = {"model": GLib.Variant("s", "chat")}
    streams = [
        Stream(daemon.client.create_job(f"!slow 20 {words}", **named)[1]) for _ in range(8)
    ]  # twice what is answered together: some wait when the update fails
    last = rig.end(daemon, rig.install(daemon, operator.home / "bundle-2"))
    assert last["Error"][0] == "unhealthy"
    for stream in streams:
        records = stream.rest()
        assert "done" in records[-1], records[-1]


def _damage(bundle: Path, what: str) -> None:
    path = next((bundle / what).iterdir()) if (bundle / what).is_dir() else bundle / what
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)


@pytest.mark.parametrize("what", ["catalog.json", "manifests", "blobs"])
def test_a_flipped_byte_is_refused_and_nothing_changes(
    start: rig.Start, operator: Operator, tmp_path: Path, what: str
) -> None:
    daemon = start()
    bad = copy(operator.home / "bundle-1", tmp_path / "stick")
    _damage(bad, what)
    if what == "blobs":  # only its hash tells, when it is there
        last = rig.end(daemon, rig.install(daemon, bad))
        assert (last["State"], last["Error"][0]) == ("failed", "chunk-hash")
        assert "the bundle has it not" in last["Error"][1]  # and so no whole file either
    else:
        with pytest.raises((errors.BadSignature, errors.BadDocument, errors.MixAndMatch,
                            errors.BadChain)):  # fmt: skip
            rig.install(daemon, bad)
    assert content(daemon) == model(operator, "v1")
    assert rig.rest(daemon)["Current"] == 0


def test_a_stranger_s_signature_no_bundle_and_no_trust_are_named(
    start: rig.Start, operator: Operator, tmp_path: Path
) -> None:
    stranger = Operator.found(tmp_path / "stranger")
    v1, v2 = (operator.home / name for name in ("v1", "v2"))
    daemon = start()
    with pytest.raises(errors.BadChain):
        rig.install(daemon, stranger.bundle(1, v1, v2))
    with pytest.raises(errors.FileUnreadable, match="catalog"):
        rig.install(daemon, tmp_path)
    with pytest.raises(errors.InvalidRequest, match="options"):
        rig.install(daemon, operator.home / "bundle-1", frce=GLib.Variant("b", True))
    daemon.stop()
    daemon = start(enabled="false")
    with pytest.raises(errors.Unavailable, match="switched off"):
        rig.install(daemon, operator.home / "bundle-1")


def test_two_at_once_is_busy_and_an_inhibitor_or_a_cancel_ends_the_wait(
    start: rig.Start, operator: Operator
) -> None:
    daemon = start()
    args = GLib.Variant("(ss)", ("a test", "somebody talks"))
    _, (lock,) = daemon.client.call_with_fds(contract.UPDATE, "Inhibit", args)
    job = rig.install(daemon, operator.home / "bundle-1")
    until(lambda: rig.look(daemon, job)["State"] == "waiting", "the wait")
    assert "somebody talks" in rig.look(daemon, job)["Error"][1]
    daemon.client.call(contract.UPDATE_JOB, "Cancel", path=job)
    assert rig.end(daemon, job)["Error"][0] == "cancelled"
    job = rig.install(daemon, operator.home / "bundle-1")
    until(lambda: rig.look(daemon, job)["State"] == "waiting", "the wait")
    os.close(lock)
    rig.catch(daemon, job, "applying")
    with pytest.raises(errors.Busy):
        rig.install(daemon, operator.home / "bundle-2")
    assert rig.end(daemon, job)["State"] == "done"
    assert content(daemon) == model(operator, "v2")


@pytest.mark.parametrize("phase", ["fetching", "applying", "verifying", "activating", "testing"])
def test_a_kill_in_any_phase_ends_in_old_or_new(
    start: rig.Start, operator: Operator, phase: str
) -> None:
    daemon = start()
    job = rig.install(daemon, operator.home / "bundle-1")
    seen = rig.catch(daemon, job, phase)
    os.kill(daemon.process.pid, signal.SIGKILL)
    daemon.process.wait(10)
    daemon.client.close()
    state = (daemon.home / "state/ota/state.json").read_text()
    daemon = start()
    assert content(daemon) in (model(operator, "v1"), model(operator, "v2")), (seen, state)
    rig.rest(daemon)
    assert content(daemon) == model(operator, "v2")  # it went on by itself
    assert daemon.client.ask("hello") == "hello"


@pytest.mark.parametrize("phase", ["fetching", "applying", "testing"])
def test_a_cancel_in_a_phase_leaves_the_old_set(
    start: rig.Start, operator: Operator, phase: str
) -> None:
    daemon = start()
    job = rig.install(daemon, operator.home / "bundle-1")
    if rig.catch(daemon, job, phase):
        daemon.client.call(contract.UPDATE_JOB, "Cancel", path=job)
    last = rig.end(daemon, job)
    expected = "v1" if last["State"] == "failed" else "v2"  # it came too late
    rig.rest(daemon)
    assert content(daemon) == model(operator, expected)


def test_stokerctl_shows_and_does_it_all(
    start: rig.Start, operator: Operator, child_env: dict[str, str]
) -> None:
    daemon = start(sources=f'["{operator.home / "bundle-1"}"]')

    def stokerctl(*words: str, status: int = 0) -> str:
        command = [sys.executable, "-m", "stoker.cli.main", "--bus", daemon.bus.address, "update"]
        done = subprocess.run(
            [*command, *words], env=child_env, text=True, capture_output=True, timeout=60,
            check=False,
        )  # fmt: skip
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    bundle = str(operator.home / "bundle-1")
    assert "chat" in stokerctl("check")
    assert "new" in stokerctl("inspect", bundle)
    assert "chat 1 is installed" in stokerctl("install")  # what the check found
    assert "installed" in stokerctl("list")
    assert "unhealthy" in stokerctl("--json", "install", str(operator.home / "bundle-2"), status=69)
    assert "committed" in stokerctl("history")
    assert "used again" in stokerctl("rollback")
    assert "cannot open the bundle" in stokerctl("install", "/nowhere", status=66)
    assert "last look" in stokerctl("install", status=64)  # nothing new since


def test_a_set_that_wants_a_confirmation_serves_and_waits_for_it_also_after_a_restart(
    start: rig.Start, operator: Operator
) -> None:
    v1, v2 = operator.home / "v1", operator.home / "v2"
    bundle = operator.bundle(3, v1, v2, '[health]\nconfirm = "dbus"\n')
    daemon = start()
    job = rig.install(daemon, bundle)
    until(lambda: "confirm" in rig.look(daemon, job)["Error"][1], "the wait")
    assert content(daemon) == model(operator, "v2")
    daemon.stop()
    daemon = start()
    assert content(daemon) == model(operator, "v2")
    until(lambda: rig.facts(daemon)["Job"] != "/", "the job")
    job = rig.facts(daemon)["Job"]
    daemon.client.call(contract.UPDATE, "Confirm", GLib.Variant("(s)", ("chat",)))
    assert rig.end(daemon, job)["State"] == "done"
    assert content(daemon) == model(operator, "v2")
