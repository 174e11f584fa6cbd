"""Parts on a disk that is full, cut off or shared: what is claimed to be here is here."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from stoker_ota.core import chunks, have
from stoker_ota.drivers import parts
from stoker_ota.drivers.parts import FilledPart, GrowingPart
from stoker_ota.errors import InvalidRequest, NoSpace, StorageFailed
from stoker_ota.values.chunks import ChunkIndex, Chunks

SIZE = 1024
DATA = os.urandom(10 * SIZE + 7)
PIECES = [DATA[at : at + SIZE] for at in range(0, len(DATA), SIZE)]
INDEX = chunks.index_of(PIECES, len(DATA), SIZE)
WANTED = chunks.of_index(INDEX)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.part"


def filled(path: Path, wanted: Chunks = WANTED, index: ChunkIndex = INDEX) -> FilledPart:
    return FilledPart(path, wanted, index)


def journal(path: Path) -> Path:
    return path.with_name("x.part.have")


def test_chunks_in_any_order_make_the_file_and_the_journal_goes_at_the_end(path: Path) -> None:
    with filled(path) as part:
        assert path.stat().st_size == len(DATA)
        for number in (3, 10, 0):
            part.put(number, PIECES[number])
    with filled(path) as part:
        assert list(part.have.missing()) == [1, 2, 4, 5, 6, 7, 8, 9]
        for number in part.have.missing():
            part.put(number, PIECES[number])
        assert part.have.complete
        part.finish()
    assert path.read_bytes() == DATA
    assert not journal(path).exists()


def test_a_bit_is_on_the_disk_only_after_its_bytes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fdatasync has not confirmed is not in the journal that a cut would leave."""
    monkeypatch.setattr(parts, "SYNC_BYTES", 3 * SIZE)
    synced: list[set[int]] = []
    with filled(path) as part:
        real = os.fdatasync

        def sync(fd: int) -> None:
            real(fd)
            synced.append({n for n in range(11) if n in part.have})

        monkeypatch.setattr(os, "fdatasync", sync)
        for number in range(7):
            part.put(number, PIECES[number])
            left = have.decode(journal(path).read_bytes(), WANTED.root, INDEX.count)
            durable = synced[-1] if synced else set()
            assert {n for n in range(11) if n in left} <= durable
        assert len(synced) == 2


def test_after_a_failed_sync_nothing_is_claimed_even_if_the_next_would_succeed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.fdatasync, [0]

    def fail_once(fd: int) -> None:
        calls[0] += 1
        if calls[0] == 1:
            raise OSError(errno.EIO, "Input/output error")
        real(fd)

    def fill() -> None:
        with filled(path) as part:
            part.put(0, PIECES[0])
            part.sync()

    monkeypatch.setattr(os, "fdatasync", fail_once)
    with pytest.raises(StorageFailed):
        fill()
    with filled(path) as part:
        assert part.have.held == 0


def _fill(path: Path) -> None:
    with filled(path) as part:
        part.put(0, PIECES[0])
        part.finish()


def _grow(path: Path) -> None:
    with GrowingPart(path) as part:
        part.begin(0, "")
        part.append(b"x")
        part.finish()


@pytest.mark.parametrize(
    ("act", "call"),
    [(_fill, "posix_fallocate"), (_fill, "pwrite"), (_fill, "fsync"), (_grow, "pwrite"),
     (_grow, "fsync"), (_grow, "ftruncate")],
)  # fmt: skip
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_every_refusal_of_the_disk_has_its_error(
    path: Path, monkeypatch: pytest.MonkeyPatch, act: Any, call: str, number: int
) -> None:
    def fail(*_: Any) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(NoSpace if number == errno.ENOSPC else StorageFailed):
        act(path)


def test_a_journal_of_another_object_or_a_damaged_one_is_not_believed(path: Path) -> None:
    with filled(path) as part:
        part.put(0, PIECES[0])
    other = Chunks(SIZE, "ab" * 32)
    with filled(path, other) as part:
        assert part.have.held == 0
    with filled(path) as part:
        part.put(0, PIECES[0])
    journal(path).write_bytes(b"junk")
    with filled(path) as part:
        assert part.have.held == 0


def test_what_was_fetched_without_chunks_is_taken_over_as_far_as_it_is_right(path: Path) -> None:
    path.write_bytes(DATA[: 4 * SIZE] + b"x" * SIZE + DATA[5 * SIZE : 6 * SIZE])
    with filled(path) as part:
        assert [n for n in range(11) if n in part.have] == [0, 1, 2, 3]


def test_a_file_with_holes_is_no_begin_of_a_whole_one(path: Path) -> None:
    with filled(path) as part:
        part.put(9, PIECES[9])
    with GrowingPart(path) as growing:
        assert growing.size == 0
    assert journal(path).exists()  # nothing was lost by looking
    with GrowingPart(path) as growing:
        growing.append(b"new")
        growing.finish()
    assert path.read_bytes() == b"new"
    assert not journal(path).exists()


def test_a_growing_part_remembers_its_version(path: Path) -> None:
    with GrowingPart(path) as part:
        part.begin(0, '"v1"')
        part.append(b"abc")
    with GrowingPart(path) as part:
        assert (part.size, part.mark) == (3, '"v1"')
        part.begin(0, '"v2"')
        part.append(b"de")
        part.finish()
    assert path.read_bytes() == b"de"
    assert [item.name for item in path.parent.iterdir()] == ["x.part"]


def test_two_cannot_fill_one_part(path: Path) -> None:
    with filled(path), pytest.raises(InvalidRequest, match="another process"):
        GrowingPart(path)
