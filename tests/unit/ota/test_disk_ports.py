"""One contract for the store's disk, held by the real one and by the one tests cut."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest
from tests.fakes.disk import FakeDisk

from stoker_ota.drivers.disk import RealDisk
from stoker_ota.errors import FileUnreadable, StorageFailed
from stoker_ota.ports.disk import Disk
from stoker_ota.services.store import Store
from stoker_ota.values.deployment import Journal, Member


@pytest.fixture(params=["real", "fake"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return RealDisk(tmp_path) if request.param == "real" else FakeDisk()


def test_what_is_written_is_read_and_replaced_and_appended(disk: Disk) -> None:
    disk.make_folder("a/b")
    disk.write("a/b/file", b"first, and long")
    disk.write("a/b/file", b"second")
    disk.append("a/b/file", b" and more")
    assert disk.read("a/b/file", 100) == b"second and more"
    assert disk.size("a/b/file") == 15
    assert disk.sha256("a/b/file") == hashlib.sha256(b"second and more").hexdigest()


def test_absent_things_are_none_or_empty_and_removing_them_is_no_error(disk: Disk) -> None:
    assert disk.read("nothing", 9) is None
    assert disk.size("nothing") is None
    assert disk.readlink("nothing") is None
    assert disk.names("nothing") == ()
    disk.remove("nothing")


def test_a_file_longer_than_allowed_and_a_folder_are_not_read(disk: Disk) -> None:
    disk.make_folder("folder")
    disk.write("file", b"1234")
    for path in ("file", "folder"):
        with pytest.raises(FileUnreadable):
            disk.read(path, 3)
    with pytest.raises(FileUnreadable):
        disk.sha256("nothing")


def test_rename_replaces_a_file_and_a_link(disk: Disk) -> None:
    disk.write("old", b"old")
    disk.write("new", b"new")
    disk.rename("new", "old")
    assert (disk.read("old", 9), disk.read("new", 9)) == (b"new", None)
    disk.symlink("here", "current")
    disk.symlink("there", "current.new")
    disk.rename("current.new", "current")
    assert disk.readlink("current") == "there"
    assert "current.new" not in disk.names(".")


def test_a_link_is_followed_by_reading_but_is_no_file_of_its_own(disk: Disk) -> None:
    disk.make_folder("objects")
    disk.make_folder("set")
    disk.write("objects/one", b"content")
    disk.symlink("../objects/one", "set/model")
    assert disk.read("set/model", 99) == b"content"
    assert disk.size("set/model") is None
    disk.remove("set/model")
    assert disk.read("objects/one", 99) == b"content"


def test_a_folder_is_renamed_and_removed_with_all_that_is_in_it(disk: Disk) -> None:
    disk.make_folder("making")
    disk.write("making/file", b"1")
    disk.rename("making", "made")
    assert disk.names("made") == ("file",)
    disk.remove("made")
    assert disk.names(".") == ()


def test_names_cannot_be_made_where_no_folder_is(disk: Disk) -> None:
    with pytest.raises(StorageFailed):
        disk.write("no/file", b"")
    with pytest.raises(StorageFailed):
        disk.rename("nothing", "something")
    with pytest.raises(StorageFailed):
        disk.sync_folder("nothing")


def test_a_stretch_of_a_file_is_read_and_copied_or_refused(disk: Disk) -> None:
    disk.write("file", b"0123456789")
    assert disk.read_part("file", 2, 3) == b"234"
    disk.copy_part("file", 8, 2, "piece")
    disk.copy_part("file", 3, 0, "empty")
    assert (disk.read("piece", 9), disk.read("empty", 9)) == (b"89", b"")
    for name, offset in (("file", 9), ("gone", 0)):
        with pytest.raises(FileUnreadable):
            disk.read_part(name, offset, 2)
        with pytest.raises(FileUnreadable):
            disk.copy_part(name, offset, 2, "other")


def test_a_sealed_file_is_still_read(disk: Disk) -> None:
    disk.write("file", b"1")
    disk.seal("file")
    assert disk.read("file", 9) == b"1"
    assert disk.free_bytes() > 0


def test_a_strange_name_among_the_generations_is_removed_and_stops_nothing(disk: Disk) -> None:
    disk.make_folder("generations/²")  # a digit for str.isdigit, but no number
    store = Store(disk)
    number = store.make_generation(b"{}", [])
    store.collect(Journal(generation=number))
    assert disk.names("generations") == (str(number),)


def test_whatever_the_umask_the_runtime_can_read_an_installed_set(tmp_path: Path) -> None:
    before = os.umask(0o077)  # as in the packaged unit
    try:
        store = Store(RealDisk(tmp_path))
        part = "staging/x/part"
        RealDisk(tmp_path).make_folder("staging/x")
        RealDisk(tmp_path).write(part, b"model")
        digest = hashlib.sha256(b"model").hexdigest()
        store.adopt(part, digest)
        number = store.make_generation(b"{}", [Member("model", "chat", "1", digest)])
    finally:
        os.umask(before)
    link = tmp_path / f"generations/{number}/chat"
    assert stat.S_IMODE(link.stat().st_mode) == 0o444
    for folder in (
        link.parent,
        link.resolve().parent,
        tmp_path / "objects",
        tmp_path / "objects/sha256",
    ):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o755
