"""SIGKILL upon SIGKILL at random moments of an update: always the old set or the new one."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
from tests.fakes.update_bundles import Operator
from tests.integration import update_rig as rig
from tests.integration.stokerd_rig import Stokerd

from stoker import errors
from stoker.tour.private_bus import PrivateBus

pytestmark = [pytest.mark.bus, pytest.mark.timeout(300)]
SIZE = 8 << 20
KILLS, MOST_KILLS = 10, 40
MOMENTS = 3  # kills go on until so many phases were hit: how long each takes is the machine's
PHASES = ("offered", "preflight", "fetching", "applying", "verifying", "staged", "activating",
          "testing", "committed")  # fmt: skip


def _phase(state: Path) -> str:
    """As the disk has it: the journal is there before each action."""
    return str(json.loads(state.read_bytes())["journal"]["phase"]) if state.exists() else "idle"


def _reach(state: Path, wanted: str) -> None:
    """The phase, or one behind it, or half a second in which nothing is under way."""
    end = time.monotonic() + 5.0
    while time.monotonic() < end:
        now = _phase(state)
        if now in PHASES and PHASES.index(now) >= PHASES.index(wanted):
            return
        if now == "idle":
            end = min(end, time.monotonic() + 0.5)


def _moments(seen: list[str]) -> int:
    return len({*seen} - {"idle"})


def test_kills_at_random_moments_always_leave_a_whole_set(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str]
) -> None:
    chance = random.Random(os.environ.get("STOKER_TEST_SEED", "11"))
    operator = Operator.found(tmp_path / "operator")
    v1, v2 = operator.home / "v1", operator.home / "v2"
    old = bytearray(chance.randbytes(SIZE))
    v1.write_bytes(old)
    for _ in range(2000):
        old[chance.randrange(SIZE)] ^= 0x10
    v2.write_bytes(old)
    text = rig.config(v1, operator)
    wholes, seen = (v1.read_bytes(), v2.read_bytes()), list[str]()
    state, current = tmp_path / "state/ota/state.json", tmp_path / "state/ota/current/chat"
    version = 0
    while len(seen) < KILLS or (_moments(seen) < MOMENTS and len(seen) < MOST_KILLS):
        daemon = Stokerd(private_bus, tmp_path, child_env, "--engine=echo", config=text)
        if _phase(state) == "idle":  # else it goes on by itself, also before it is ready
            daemon.wait_ready()
            version += 1  # a new one each time: no kill is spent on an update that is over
            there = current.exists() and current.read_bytes() == wholes[1]
            bundle = operator.bundle(version, *((v2, v1) if there else (v1, v2)))
            with contextlib.suppress(errors.Busy):
                rig.install(daemon, bundle)
        _reach(state, PHASES[len(seen) % len(PHASES)])
        time.sleep(chance.uniform(0.0, 0.05))
        os.kill(daemon.process.pid, signal.SIGKILL)
        daemon.process.wait(10)
        daemon.client.close()
        seen.append(_phase(state))
        assert not current.exists() or current.read_bytes() in wholes
    assert _moments(seen) >= MOMENTS, f"too few of an update's moments were hit: {seen}"
    daemon = Stokerd(private_bus, tmp_path, child_env, "--engine=echo", config=text)
    try:
        daemon.wait_ready()
        rig.rest(daemon)
        assert Path(rig.served_path(daemon)).read_bytes() in wholes
        assert daemon.client.ask("still here") == "still here"
    finally:
        daemon.stop()
