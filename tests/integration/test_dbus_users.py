"""Other users: what the bus policy lets through, and what the daemon refuses by itself."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from gi.repository import GLib
from tests.fakes.bus_client import BusClient
from tests.integration.conftest import Spawn

from stoker.api import contract
from stoker.tour.private_bus import PrivateBus

NOBODY = 65534

pytestmark = [
    pytest.mark.bus,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can call as another user"),
]


def call(
    bus: PrivateBus,
    method: str,
    *args: str,
    path: str = contract.AGENT_PATH,
    uid: int = NOBODY,
    to: str = contract.BUS_NAME,
) -> tuple[str, str]:
    """(output, error name) of ``gdbus call`` as user ``uid``."""
    command = ["gdbus", "call", "--address", bus.address, "--dest", to]
    command += ["--object-path", path, "--method", method, "--timeout", "10", *args]
    done = subprocess.run(
        command, user=uid, group=uid, extra_groups=[], cwd="/", capture_output=True, text=True,
        timeout=15, check=False,
    )  # fmt: skip
    found = re.search(r"GDBus\.Error:([\w.]+)", done.stderr)
    return done.stdout.strip(), found.group(1) if found else done.stderr.strip()


@pytest.fixture
def policy(root: Path) -> Path:
    return root / "policies/dbus/org.stoker.Agent1.conf"


@pytest.fixture
def system_like(policy: Path, spawn: Spawn) -> Iterator[PrivateBus]:
    with PrivateBus([policy]) as bus:
        spawn("tests.fakes.dbus_server", bus.address, ready="ready")
        yield bus


@pytest.fixture
def open_bus(session_bus: PrivateBus, fake_server: object) -> PrivateBus:
    return session_bus


def test_anyone_may_ask_and_read_under_the_shipped_policy(system_like: PrivateBus) -> None:
    assert call(system_like, f"{contract.INFERENCE}.Ask", "hi") == ("('hi ',)", "")
    assert call(system_like, f"{contract.AGENT}.Status")[1] == ""
    assert call(system_like, f"{contract.THERMAL}.Details")[1] == ""
    get = f"{contract.PROPERTIES}.Get"
    assert call(system_like, get, contract.AGENT, "Version")[1] == ""
    assert call(system_like, f"{contract.PROPERTIES}.GetAll", contract.INFERENCE)[1] == ""
    assert call(system_like, "org.freedesktop.DBus.Peer.Ping")[1] == ""
    out, error = call(system_like, f"{contract.INFERENCE}.CreateJob", "{'prompt': <'hi'>}", "{}")
    assert error == ""
    path = re.search(r"'(/org/stoker/[^']+)'", out)
    assert path is not None
    assert call(system_like, f"{contract.JOB}.GetResult", path=path.group(1))[1] == ""


DEEDS = [
    (f"{contract.AGENT}.Reload",),
    (f"{contract.AGENT}.RestartRunner",),
    (f"{contract.AGENT}.SelectModel", "fake"),
    (f"{contract.THERMAL}.Calibrate", "{}"),
    (f"{contract.THERMAL}.CancelCalibration",),
    (f"{contract.UPDATE}.CheckNow",),
    (f"{contract.UPDATE}.Rollback",),
    (f"{contract.UPDATE}.Confirm", "chat"),
    (f"{contract.UPDATE}.Inhibit", "who", "why"),
]


@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed[0])
def test_the_shipped_policy_lets_only_administrators_manage(
    system_like: PrivateBus, deed: tuple[str, ...]
) -> None:
    denied = "org.freedesktop.DBus.Error.AccessDenied"
    method, *words = deed
    assert call(system_like, method, *words)[1] == denied
    assert call(system_like, method, *words, uid=0)[1] == ""


def test_everyone_may_see_updates_and_only_administrators_cancel_one(
    system_like: PrivateBus, open_bus: PrivateBus
) -> None:
    assert call(system_like, f"{contract.UPDATE}.ListDeployments")[1] == ""
    assert call(system_like, f"{contract.UPDATE}.GetHistory", "0", "9")[1] == ""
    assert call(system_like, f"{contract.PROPERTIES}.GetAll", contract.UPDATE)[1] == ""
    for bus, refusal in (
        (system_like, "org.freedesktop.DBus.Error.AccessDenied"),
        (open_bus, "org.stoker.Error.NotAuthorized"),
    ):
        out, _ = call(bus, f"{contract.UPDATE}.Rollback", uid=0)
        path = re.search(r"'(/org/stoker/[^']+)'", out)
        assert path is not None
        job = path.group(1)
        assert call(bus, f"{contract.PROPERTIES}.GetAll", contract.UPDATE_JOB, path=job)[1] == ""
        assert call(bus, f"{contract.UPDATE_JOB}.Cancel", path=job)[1] == refusal
        assert call(bus, f"{contract.UPDATE_JOB}.Cancel", path=job, uid=0)[1] == ""


def test_the_shipped_policy_denies_what_it_does_not_name(system_like: PrivateBus) -> None:
    denied = "org.freedesktop.DBus.Error.AccessDenied"
    put = f"{contract.PROPERTIES}.Set"
    assert call(system_like, put, contract.THERMAL, "Wall", "<99.0>")[1] == denied
    assert call(system_like, "org.example.Other.Method")[1] == denied


def test_the_shipped_policy_holds_for_the_unique_name_too(system_like: PrivateBus) -> None:
    with BusClient(system_like.address) as client:
        owner = client.con.call_sync(
            "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus",
            "GetNameOwner", GLib.Variant("(s)", (contract.BUS_NAME,)), None, 0, 5000, None,
        ).unpack()[0]  # fmt: skip
    denied = "org.freedesktop.DBus.Error.AccessDenied"
    assert call(system_like, f"{contract.AGENT}.Reload", to=owner)[1] == denied
    assert call(system_like, f"{contract.INFERENCE}.Ask", "hi", to=owner)[1] == ""


def test_the_shipped_policy_lets_nobody_else_take_the_name(policy: Path) -> None:
    with PrivateBus([policy]) as bus:
        command = ["gdbus", "call", "--address", bus.address, "--dest", "org.freedesktop.DBus"]
        command += ["--object-path", "/org/freedesktop/DBus", "--method"]
        command += ["org.freedesktop.DBus.RequestName", contract.BUS_NAME, "0"]
        done = subprocess.run(
            command, user=NOBODY, group=NOBODY, cwd="/", capture_output=True, text=True,
            timeout=15, check=False,
        )  # fmt: skip
        assert "AccessDenied" in done.stderr


def test_a_group_that_the_policy_admits_still_meets_the_daemons_own_check(
    policy: Path, tmp_path: Path, spawn: Spawn
) -> None:
    group = "nogroup" if pwd.getpwuid(NOBODY).pw_gid == NOBODY else "nobody"
    widened = tmp_path / "wide.conf"
    widened.write_text(policy.read_text().replace('group="stoker-admin"', f'group="{group}"'))
    with PrivateBus([widened]) as bus:
        spawn("tests.fakes.dbus_server", bus.address, ready="ready")
        error = call(bus, f"{contract.AGENT}.Reload")[1]
        assert error == "org.stoker.Error.NotAuthorized"


@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed[0])
def test_without_a_bus_policy_the_daemon_refuses_by_itself(
    open_bus: PrivateBus, deed: tuple[str, ...]
) -> None:
    method, *words = deed
    assert call(open_bus, method, *words)[1] == "org.stoker.Error.NotAuthorized"


def test_another_users_job_looks_as_if_it_were_not_there(open_bus: PrivateBus) -> None:
    with BusClient(open_bus.address) as owner:
        job, stream = owner.create_job("hold")
        os.close(stream)
        for method in ("Cancel", "GetResult"):
            error = call(open_bus, f"{contract.JOB}.{method}", path=job)[1]
            assert error == "org.stoker.Error.NotFound"
        get = f"{contract.PROPERTIES}.Get"
        assert call(open_bus, get, contract.JOB, "State", path=job)[1].endswith("NotFound")
        everything = f"{contract.PROPERTIES}.GetAll"
        assert call(open_bus, everything, contract.JOB, path=job)[1].endswith("NotFound")


def test_a_job_serves_its_users_other_connections_and_administrators(
    open_bus: PrivateBus,
) -> None:
    out, _ = call(open_bus, f"{contract.INFERENCE}.CreateJob", "{'prompt': <'hi'>}", "{}")
    found = re.search(r"'(/org/stoker/[^']+)'", out)
    assert found is not None
    assert call(open_bus, f"{contract.JOB}.GetResult", path=found.group(1))[1] == ""
    assert call(open_bus, f"{contract.JOB}.GetResult", path=found.group(1), uid=0)[1] == ""
    assert call(open_bus, f"{contract.JOB}.GetResult", path=found.group(1), uid=1)[1].endswith(
        "NotFound"
    )


def test_signals_of_a_job_cannot_be_overheard(open_bus: PrivateBus) -> None:
    command = ["gdbus", "monitor", "--address", open_bus.address, "--dest", contract.BUS_NAME]
    listener = subprocess.Popen(
        command, user=NOBODY, group=NOBODY, cwd="/", stdout=subprocess.PIPE, text=True
    )
    try:
        assert listener.stdout is not None
        assert "Monitoring" in listener.stdout.readline()
        assert "owned by" in listener.stdout.readline()
        with BusClient(open_bus.address) as owner:
            owner.create_job("signals 5")
            owner.ask("later")
            call(open_bus, f"{contract.INFERENCE}.Ask", "so that its queue was read")
    finally:
        listener.terminate()
        said = listener.communicate(timeout=5)[0]
    assert "Started" not in said
    assert "Finished" not in said
