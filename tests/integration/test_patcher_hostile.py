"""What the two patchers do with a process that was taken over, or dies, in the applier's place."""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.conftest import Spawn
from tests.integration.test_patcher_port import DELTA, INDEX, NEW, OLD

from stoker.drivers.apply_unit import Deadlines, UnitPatcher
from stoker.drivers.systemd_units import SystemdUnits
from stoker.tour.private_bus import PrivateBus
from stoker_ota.drivers.apply_link import Patience
from stoker_ota.drivers.patcher import ChildPatcher
from stoker_ota.errors import (
    BadDelta,
    InternalError,
    NoMemory,
    OtaError,
    Unavailable,
)
from stoker_ota.ports.files import no_progress
from stoker_ota.ports.updates import Patcher

pytestmark = pytest.mark.bus

PEER = "tests.fakes.apply_peer"
LONG = Patience(silence_s=30.0, whole_s=60.0)  # also where starting a program takes seconds
SHORT = {"says nothing": Patience(4.0, 60.0), "whispers": Patience(30.0, 4.0)}
QUICK = Deadlines(start_s=10, grace_s=0.3, end_s=5)
Make = Callable[..., Patcher]


@pytest.fixture
def child(tmp_path: Path) -> Make:
    def make(deed: str, *, patience: Patience = LONG) -> Patcher:
        os.environ["STOKER_APPLY_PEER"] = deed
        return ChildPatcher(tmp_path, patience=patience, program=("-m", PEER))

    return make


@pytest.fixture
def unit(tmp_path: Path, private_bus: PrivateBus, spawn: Spawn, child_env: dict[str, str]) -> Make:
    sockets = tmp_path / "run"
    sockets.mkdir()

    def make(
        deed: str, *flags: str, patience: Patience = LONG, deadlines: Deadlines = QUICK,
        user: str = "",
    ) -> Patcher:  # fmt: skip
        spawn(
            "tests.fakes.systemd1", private_bus.address, "--sockets", str(sockets),
            "--apply", PEER, *flags, ready="ready", env={**child_env, "STOKER_APPLY_PEER": deed},
        )  # fmt: skip
        return UnitPatcher(
            tmp_path, runtime_dir=sockets, systemd=SystemdUnits(private_bus.address),
            user=user or getpass.getuser(), patience=patience, deadlines=deadlines,
        )  # fmt: skip

    return make


@pytest.fixture(params=["child", "unit"])
def make(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    monkeypatch.setenv("STOKER_APPLY_PEER", "")
    (tmp_path / "d").write_bytes(DELTA)
    (tmp_path / "s").write_bytes(OLD)
    found: Make = request.getfixturevalue(request.param)
    return found


unit_only = pytest.mark.parametrize("make", ["unit"], indirect=True)


def apply(patcher: Patcher) -> None:
    patcher.apply("d", INDEX.hex(), "s", "new.part", len(NEW), no_progress)


def alive(pid: int) -> bool:
    """Not merely waiting to be reaped by its parent."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


REFUSED: dict[str, type[OtaError]] = {
    "floods": BadDelta, "never ends a line": BadDelta, "talks nonsense": BadDelta,
    "nests": BadDelta, "says a huge number": BadDelta, "invents a code": InternalError,
    "says nothing": InternalError, "whispers": InternalError, "grows": BadDelta,
    "leaves": InternalError, "crashes": BadDelta, "is killed": NoMemory,
}  # fmt: skip


@pytest.mark.parametrize("deed", REFUSED)
def test_no_word_of_a_process_that_was_taken_over_does_harm(
    make: Make, tmp_path: Path, deed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids: list[int] = []
    monkeypatch.setattr(
        Path, "unlink", _remembering(pids, tmp_path / "new.part", Path.unlink)
    )  # its number, before the part goes
    with pytest.raises(REFUSED[deed]) as caught:
        apply(make(deed, patience=SHORT.get(deed, LONG)))
    assert type(caught.value) is REFUSED[deed]
    assert caught.value.message.isprintable()
    assert not (tmp_path / "new.part").exists()
    assert pids
    assert not any(alive(pid) for pid in pids)


def _remembering(pids: list[int], part: Path, unlink: Callable[..., None]) -> Callable[..., None]:
    def remember(path: Path, missing_ok: bool = False) -> None:
        if path == part:
            pids.append(int(path.read_bytes().partition(b"\n")[0]))
        unlink(path, missing_ok=missing_ok)

    return remember


def test_a_lie_about_the_end_is_left_to_the_hash_and_the_liar_is_gone(
    make: Make, tmp_path: Path
) -> None:
    apply(make("lies"))
    part = (tmp_path / "new.part").read_bytes()
    assert part != NEW
    assert not alive(int(part.partition(b"\n")[0]))


def test_a_process_that_was_stopped_is_tried_again_and_its_part_stays(
    make: Make, tmp_path: Path
) -> None:
    with pytest.raises(Unavailable) as caught:
        apply(make("is stopped"))
    assert caught.value.retryable
    assert (tmp_path / "new.part").stat().st_size == len(NEW)


@unit_only
def test_a_kill_for_want_of_memory_is_told_as_such(make: Make) -> None:
    with pytest.raises(NoMemory):
        apply(make("crashes", "--oom"))


@unit_only
def test_a_process_that_cannot_be_ended_never_gets_its_part_used(
    make: Make, tmp_path: Path
) -> None:
    """It may still write: even a good last word is worth nothing then."""
    with pytest.raises(InternalError, match="does not end"):
        apply(make("lies and stays", "--immortal", deadlines=Deadlines(10, 0.1, 0.5)))
    assert not (tmp_path / "new.part").exists()


@unit_only
@pytest.mark.parametrize(
    ("flag", "words"), [("--broken", "did not start"), ("--deny", "Access denied")]
)
def test_a_unit_that_does_not_come_is_tried_again(
    make: Make, tmp_path: Path, flag: str, words: str
) -> None:
    with pytest.raises(Unavailable, match=words):
        apply(make("lies", flag))
    assert (tmp_path / "new.part").exists()
    assert not list((tmp_path / "run").iterdir())


@unit_only
def test_a_user_that_does_not_exist_is_a_typed_error(make: Make, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no-such-user"):
        apply(make("lies", user="no-such-user"))


@unit_only
def test_another_user_at_the_socket_gets_no_descriptor(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """We come as ourselves while another user is expected."""
    if os.geteuid():  # only root may give that user's group
        monkeypatch.setattr(os, "chown", lambda *_: None)
    with pytest.raises(Unavailable):
        apply(make("lies", user="nobody"))
    assert (tmp_path / "new.part").read_bytes() == bytes(len(NEW))


@unit_only
def test_sockets_of_an_earlier_life_go(make: Make, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(tmp_path / "run/apply-17.sock"))
        make("lies")
    assert not list((tmp_path / "run").iterdir())


def test_another_process_at_the_same_part_is_waited_for(make: Make, tmp_path: Path) -> None:
    """One of a stokerd that was killed a moment ago may still hold it."""
    from stoker_ota.drivers.files import PartFile

    with PartFile(tmp_path / "new", size=len(NEW)):
        began = time.monotonic()
        with pytest.raises(Unavailable, match="another process"):
            apply(make("lies"))
        assert time.monotonic() - began < 5
        assert (tmp_path / "new.part").exists()


@pytest.mark.parametrize("left", ["a socket nobody listens at", "nothing"])
def test_an_applier_whose_asker_was_killed_says_so_and_is_no_fault(
    tmp_path: Path, child_env: dict[str, str], left: str
) -> None:
    """Its unit would stay behind as failed, and a traceback in the journal looks like one."""
    path = tmp_path / "apply-17.sock"
    if left != "nothing":
        with socket.socket(socket.AF_UNIX) as old:
            old.bind(str(path))
    done = subprocess.run(
        [sys.executable, "-m", "stoker_ota.apply", "--connect", str(path)],
        env=child_env, text=True, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (75, "stoker-apply: whoever asked is gone\n")
    unit = Path("systemd/stoker-apply@.service").read_text()
    assert "\nSuccessExitStatus=75\n" in unit
