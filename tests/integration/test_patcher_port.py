"""stoker_ota.ports.updates.Patcher on the fake, on the child and on the packaged unit (with a
fake systemd that starts real processes): the same manners.
"""

from __future__ import annotations

import getpass
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.fakes import updates as fakes
from tests.fakes.delta_files import made
from tests.fakes.disk import FakeDisk
from tests.integration.conftest import Spawn

from stoker.drivers.apply_unit import UnitPatcher
from stoker.drivers.systemd_units import SystemdUnits
from stoker.tour.private_bus import PrivateBus
from stoker_ota.core import delta_index
from stoker_ota.drivers.patcher import ChildPatcher
from stoker_ota.errors import BadDelta, Cancelled, ChunkHash, FileUnreadable, SourceMismatch
from stoker_ota.ports.files import no_progress
from stoker_ota.ports.updates import Patcher

pytestmark = pytest.mark.bus

_CHANCE = random.Random(7)
OLD = _CHANCE.randbytes(300_000)
NEW = bytes(byte ^ (index % 97 == 0) for index, byte in enumerate(OLD)) + b"and an end"
DELTA, _ = made(OLD, NEW)
INDEX = delta_index.digest(DELTA[: delta_index.index_bytes(DELTA[: delta_index.HEADER_BYTES])])
PART = "staging/x/new.part"
Cancel = Callable[[], bool]


@dataclass
class Rig:
    """A patcher in a folder with ``delta`` and ``source``; ``read`` of the part, None = gone."""

    make: Callable[[Cancel], Patcher]
    write: Callable[[str, bytes], None]
    read: Callable[[str], bytes | None]
    old: bytes
    new: bytes
    delta: bytes
    index: str

    def apply(
        self, cancelled: Cancel = lambda: False, size: int = -1, progress: object = no_progress
    ) -> None:
        length = len(self.new) if size < 0 else size
        self.make(cancelled).apply("d", self.index, "s", PART, length, progress)  # type: ignore[arg-type]


@pytest.fixture
def fake() -> Rig:
    disk = FakeDisk()
    disk.make_folder("staging/x")

    def read(path: str) -> bytes | None:
        return disk.read(path, 1 << 20)

    return Rig(
        lambda cancelled: fakes.Patcher(disk, cancelled=cancelled), disk.write, read, fakes.OLD,
        fakes.NEW, fakes.DELTA, fakes.sha(b"index"),
    )  # fmt: skip


def on_disk(root: Path, make: Callable[[Cancel], Patcher]) -> Rig:
    (root / "staging/x").mkdir(parents=True)

    def read(path: str) -> bytes | None:
        return (root / path).read_bytes() if (root / path).exists() else None

    def write(path: str, data: bytes) -> None:
        (root / path).write_bytes(data)

    return Rig(make, write, read, OLD, NEW, DELTA, INDEX.hex())


@pytest.fixture
def child(tmp_path: Path) -> Rig:
    return on_disk(tmp_path, lambda cancelled: ChildPatcher(tmp_path, cancelled=cancelled))


@pytest.fixture
def unit(tmp_path: Path, private_bus: PrivateBus, spawn: Spawn) -> Rig:
    sockets = tmp_path / "run"
    sockets.mkdir()
    spawn("tests.fakes.systemd1", private_bus.address, "--sockets", str(sockets), ready="ready")
    return on_disk(
        tmp_path,
        lambda cancelled: UnitPatcher(
            tmp_path, runtime_dir=sockets, systemd=SystemdUnits(private_bus.address),
            cancelled=cancelled, user=getpass.getuser(),
        ),
    )  # fmt: skip


@pytest.fixture(params=["fake", "child", "unit"])
def rig(request: pytest.FixtureRequest) -> Rig:
    found: Rig = request.getfixturevalue(request.param)
    found.write("d", found.delta)
    found.write("s", found.old)
    return found


real = pytest.mark.parametrize("rig", ["child", "unit"], indirect=True)


def test_the_part_is_what_the_delta_makes_and_the_progress_reaches_its_end(rig: Rig) -> None:
    told: list[tuple[str, int, int]] = []
    rig.apply(progress=lambda *step: told.append(step))
    assert rig.read(PART) == rig.new
    assert ("apply", len(rig.new), len(rig.new)) in told
    assert all(0 <= done <= total for _, done, total in told)


def test_what_stands_in_the_part_already_may_be_right_or_wrong(rig: Rig) -> None:
    half = len(rig.new) // 2
    rig.write(PART, rig.new[:half] + bytes(len(rig.new) - half))
    rig.apply()
    assert rig.read(PART) == rig.new


def test_a_damaged_delta_is_refused_and_leaves_nothing(rig: Rig) -> None:
    rig.write("d", rig.delta[:-1])
    with pytest.raises((BadDelta, ChunkHash), match="cannot"):
        rig.apply()
    assert rig.read(PART) is None
    rig.write("d", rig.delta)
    rig.apply()
    assert rig.read(PART) == rig.new


def test_a_delta_that_makes_another_size_than_the_manifest_says_is_refused(rig: Rig) -> None:
    with pytest.raises(BadDelta, match="bytes"):
        rig.apply(size=len(rig.new) - 1)
    assert rig.read(PART) is None


def test_a_source_that_is_gone_is_an_error_and_not_a_part(rig: Rig) -> None:
    rig.make(lambda: False)
    with pytest.raises((SourceMismatch, FileUnreadable), match="cannot"):
        rig.make(lambda: False).apply("d", rig.index, "gone", PART, len(rig.new), no_progress)
    assert rig.read(PART) is None


def test_a_cancelled_job_says_so(rig: Rig) -> None:
    with pytest.raises(Cancelled):
        rig.apply(cancelled=lambda: True)
    rig.apply()
    assert rig.read(PART) == rig.new


@real
def test_another_source_is_found_out_before_anything_is_made(rig: Rig) -> None:
    rig.write("s", rig.new[: len(rig.old)])
    with pytest.raises(SourceMismatch):
        rig.apply()
    assert rig.read(PART) is None


@real
def test_another_index_than_the_manifest_names_is_refused(rig: Rig) -> None:
    rig.index = "00" * 32
    with pytest.raises(ChunkHash, match="index"):
        rig.apply()


@real
def test_it_goes_on_at_the_window_where_it_stopped(rig: Rig) -> None:
    """Windows that are whole are not made again: the first that is told lies behind them."""
    half = len(rig.new) // 2
    rig.write(PART, rig.new[:half] + bytes(len(rig.new) - half))
    told: list[int] = []
    rig.apply(progress=lambda phase, done, _: told.append(done) if phase == "apply" else None)
    assert told
    assert min(told) > half - 4096
