"""Who may manage where there is polkit, where there is none, and where it does not answer."""

from __future__ import annotations

import os
import subprocess
import time
from concurrent.futures import Future
from pathlib import Path

import pytest
from gi.repository import GLib
from tests.fakes.bus_client import BusClient
from tests.integration.conftest import Spawn
from tests.integration.stokerd_rig import stokerd
from tests.integration.test_dbus_users import NOBODY, call

from stoker import errors
from stoker.api import contract
from stoker.drivers.authority import GroupAuthority
from stoker.drivers.polkit import ACTION, PolkitAuthority
from stoker.events.inference import Owner
from stoker.tour.private_bus import PrivateBus

pytestmark = pytest.mark.bus
STRANGER = 4242  # trusted by nobody: neither root nor our own user


class Everyone(GroupAuthority):
    def _is_member(self, uid: int) -> bool:
        return True


class Nobody(GroupAuthority):
    def _is_member(self, uid: int) -> bool:
        return False


def asked(bus: PrivateBus, group: GroupAuthority, uid: int = STRANGER, name: str = "") -> bool:
    """What the authority says of a caller; turns the main loop as stokerd does."""
    with BusClient(bus.address) as client:
        authority = PolkitAuthority(client.con, group, timeout_ms=300)
        decision: Future[bool] = authority.admit(Owner(name or client.name, uid))
        until_s = time.monotonic() + 10
        while not decision.done() and time.monotonic() < until_s:
            GLib.MainContext.default().iteration(False)
            time.sleep(0.002)
        return decision.result(0)


def test_polkit_says_yes_though_the_group_would_not(private_bus: PrivateBus, spawn: Spawn) -> None:
    polkit = spawn(
        "tests.fakes.polkit1", private_bus.address, "--allow", str(os.geteuid()), ready="ready"
    )
    assert asked(private_bus, Nobody("g"))
    assert polkit.stdout is not None
    assert polkit.stdout.readline() == f"asked {ACTION} {os.geteuid()} 0\n"


def test_polkit_says_no_though_the_group_would_not(private_bus: PrivateBus, spawn: Spawn) -> None:
    spawn("tests.fakes.polkit1", private_bus.address, ready="ready")
    assert not asked(private_bus, Everyone("g"))


@pytest.mark.parametrize(("group", "answer"), [(Everyone("g"), True), (Nobody("g"), False)])
def test_without_polkit_the_group_decides(
    private_bus: PrivateBus, group: GroupAuthority, answer: bool
) -> None:
    assert asked(private_bus, group) is answer


def test_a_silent_polkit_is_no_yes_and_its_time_is_limited(
    private_bus: PrivateBus, spawn: Spawn
) -> None:
    spawn("tests.fakes.polkit1", private_bus.address, "--silent", ready="ready")
    with pytest.raises(errors.Unavailable, match="cannot ask polkit"):
        asked(private_bus, Everyone("g"))


def test_a_caller_whom_polkit_cannot_find_is_no_yes(private_bus: PrivateBus, spawn: Spawn) -> None:
    spawn("tests.fakes.polkit1", private_bus.address, ready="ready")
    with pytest.raises(errors.Unavailable):
        asked(private_bus, Everyone("g"), name=":1.999999")


@pytest.mark.parametrize("uid", [0, os.geteuid()])
def test_a_broken_polkit_locks_root_and_the_daemons_user_not_out(
    private_bus: PrivateBus, spawn: Spawn, uid: int
) -> None:
    spawn("tests.fakes.polkit1", private_bus.address, "--silent", ready="ready")
    assert asked(private_bus, Nobody("g"), uid=uid)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can call as another user")
def test_stokerd_asks_polkit_and_answers_others_meanwhile(
    private_bus: PrivateBus, spawn: Spawn, tmp_path: Path, child_env: dict[str, str]
) -> None:
    """polkit is stopped while it is asked: the status must not wait for it."""
    manage = f"{contract.AGENT}.Reload"
    with stokerd(private_bus, tmp_path, child_env, "--engine", "echo") as running:
        assert call(private_bus, manage)[1] == "org.stoker.Error.NotAuthorized"
        polkit = spawn(
            "tests.fakes.polkit1", private_bus.address, "--allow", str(NOBODY), ready="ready"
        )
        assert call(private_bus, manage)[1] == ""
        assert call(private_bus, manage, uid=1)[1] == "org.stoker.Error.NotAuthorized"
        polkit.terminate()
        polkit.wait(5)
        spawn("tests.fakes.polkit1", private_bus.address, "--silent", ready="ready")
        waiting = subprocess.Popen(
            ["gdbus", "call", "--address", private_bus.address, "--dest", contract.BUS_NAME,
             "--object-path", contract.AGENT_PATH, "--method", manage],
            user=NOBODY, group=NOBODY, cwd="/", stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        began_s = time.monotonic()
        assert running.status()["state"]
        assert time.monotonic() - began_s < 2.0
        assert "org.stoker.Error.Unavailable" in waiting.communicate(timeout=20)[1]
