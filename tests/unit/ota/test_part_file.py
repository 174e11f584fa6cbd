"""The file in the making: found again after an interruption, gone after a failure, never shared."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path

import pytest

from stoker_ota.drivers import files
from stoker_ota.drivers.files import PartFile, SourceFile
from stoker_ota.errors import FileUnreadable, InvalidRequest, NoSpace, StorageFailed


def failing(number: int) -> object:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def interrupted(part: PartFile) -> None:
    with contextlib.suppress(KeyboardInterrupt), part:
        part.write_at(0, b"abc")
        raise KeyboardInterrupt


def write(part: PartFile) -> None:
    with part:
        part.write_at(0, b"abc")
        part.sync()
        part.publish()


def test_the_final_name_appears_only_with_everything_in_it(tmp_path: Path) -> None:
    final = tmp_path / "final"
    with PartFile(final, size=6) as part:
        part.write_at(3, b"def")
        part.write_at(0, b"abc")
        assert not final.exists()
        assert part.read_at(0, 6) == b"abcdef"
        part.publish()
    assert final.read_bytes() == b"abcdef"
    assert list(tmp_path.iterdir()) == [final]


def test_an_interrupted_part_is_found_again(tmp_path: Path) -> None:
    final = tmp_path / "final"
    interrupted(PartFile(final, size=6))
    with PartFile(final, size=6) as part:
        assert part.read_at(0, 6) == b"abc\0\0\0"
    with PartFile(final, size=7) as part:  # of another target: nothing of it is used
        assert part.read_at(0, 7) == bytes(7)


def test_a_part_of_unknown_size_is_not_kept(tmp_path: Path) -> None:
    interrupted(PartFile(tmp_path / "final"))
    assert list(tmp_path.iterdir()) == []


def test_two_do_not_make_the_same_file(tmp_path: Path) -> None:
    final = tmp_path / "final"
    with PartFile(final, size=3) as part:
        part.write_at(0, b"abc")
        with pytest.raises(InvalidRequest, match="another process"):
            PartFile(final, size=3)
        assert part.read_at(0, 3) == b"abc"


def test_what_was_published_meanwhile_is_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second opens the part, the first publishes it, the second gets the lock."""
    final = tmp_path / "final"
    first = PartFile(final, size=3)
    first.write_at(0, b"abc")
    lock = fcntl.flock

    def late(fd: int, how: int) -> None:
        first.publish()
        first.close()
        lock(fd, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(InvalidRequest):
        PartFile(final)
    assert final.read_bytes() == b"abc"


@pytest.mark.parametrize(
    ("name", "number", "error"),
    [
        ("pwrite", errno.ENOSPC, NoSpace),
        ("pwrite", errno.EDQUOT, NoSpace),
        ("pwrite", errno.EIO, StorageFailed),
        ("fdatasync", errno.EIO, StorageFailed),
        ("fdatasync", errno.ENOSPC, NoSpace),
        ("fsync", errno.EIO, StorageFailed),
    ],
)
def test_a_failed_write_leaves_nothing_behind(
    name: str, number: int, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    final = tmp_path / "final"
    final.write_bytes(b"what was there")
    part = PartFile(final, size=3)
    monkeypatch.setattr(os, name, failing(number))
    with pytest.raises(error):
        write(part)
    assert final.read_bytes() == b"what was there"
    assert list(tmp_path.iterdir()) == [final]


def test_no_room_is_told_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", failing(errno.ENOSPC))
    with pytest.raises(NoSpace):
        PartFile(tmp_path / "final", size=100)
    assert list(tmp_path.iterdir()) == []


def test_a_big_file_is_synced_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SYNC_BYTES", 10)
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    with PartFile(tmp_path / "final", size=100) as part:
        for at in range(0, 100, 5):
            part.write_at(at, b"12345")
    assert len(synced) == 10


def test_only_regular_files_are_sources(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "none", tmp_path / "pipe"):
        with pytest.raises(FileUnreadable):
            SourceFile(path)


def test_a_source_that_shrank_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "source"
    path.write_bytes(b"abcdef")
    with SourceFile(path) as source:
        assert source.read_at(2, 3) == b"cde"
        os.truncate(path, 4)
        with pytest.raises(FileUnreadable, match="ended early"):
            source.read_at(2, 3)
