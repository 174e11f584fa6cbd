"""A runtime's archive: what is packed comes back, nothing else is taken, tar can open it."""

from __future__ import annotations

import io
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.disk import FakeDisk

from stoker_ota.core import archive
from stoker_ota.errors import BadDocument, NoSpace, OtaError
from stoker_ota.services.store import Store
from stoker_ota.values.deployment import Member

_names = st.from_regex(archive.RUNTIME.name, fullmatch=True)
_files = st.dictionaries(_names, st.binary(max_size=1500), min_size=1, max_size=5)


def packed(files: dict[str, bytes]) -> bytes:
    parts = [
        archive.header(name, len(data)) + data + archive.padding(len(data))
        for name, data in sorted(files.items())
    ]
    return b"".join(parts) + archive.END


def unpacked(data: bytes) -> dict[str, bytes]:
    found = archive.entries(lambda at, size: data[at : at + size], len(data))
    return {entry.name: data[entry.offset : entry.offset + entry.size] for entry in found}


@given(_files)
def test_what_is_packed_comes_back_and_its_size_was_known(files: dict[str, bytes]) -> None:
    data = packed(files)
    assert unpacked(data) == files
    assert len(data) == archive.total_bytes((name, len(some)) for name, some in files.items())


@given(_files)
def test_the_usual_tar_opens_it(files: dict[str, bytes]) -> None:
    with tarfile.open(fileobj=io.BytesIO(packed(files))) as tar:
        found = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    assert found == files


@given(_files, st.data())
def test_no_byte_is_free(files: dict[str, bytes], draw: st.DataObject) -> None:
    """A change is refused, or it is in a file's bytes, or it makes other files in good form."""
    data = bytearray(packed(files))
    at = draw.draw(st.integers(0, len(data) - 1))
    data[at] ^= draw.draw(st.integers(1, 255))
    try:
        found = unpacked(bytes(data))
    except BadDocument:
        return
    assert packed(found) == bytes(data)
    assert found != files


@given(st.binary(max_size=4096))
def test_hostile_bytes_are_refused_and_nothing_else(data: bytes) -> None:
    padded = data + bytes(-len(data) % archive.BLOCK) + archive.END
    try:
        assert packed(unpacked(padded)) == padded
    except BadDocument:
        return


def _tar(member: tarfile.TarInfo, data: bytes = b"") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE,
                                  tarfile.CHRTYPE, tarfile.FIFOTYPE])  # fmt: skip
def test_links_folders_and_devices_are_refused(kind: bytes) -> None:
    member = tarfile.TarInfo("libllama.so")
    member.type, member.linkname = kind, "/etc/passwd"
    with pytest.raises(BadDocument):
        unpacked(_tar(member))


@pytest.mark.parametrize("name", ["../libllama.so", "/lib.so", "a/b.so", ".hidden", ""])
def test_names_that_are_paths_are_refused(name: str) -> None:
    with pytest.raises(BadDocument):
        archive.header(name, 0)
    with pytest.raises(BadDocument):
        unpacked(_tar(tarfile.TarInfo(name or "."), b"x"))


def test_two_of_a_name_too_many_and_an_enormous_one_are_refused() -> None:
    one = archive.header("a.so", 1) + b"x" + archive.padding(1)
    with pytest.raises(BadDocument, match="twice"):
        unpacked(one + one + archive.END)
    many = {f"lib{number:03}.so": b"" for number in range(archive.RUNTIME.files + 1)}
    with pytest.raises(BadDocument, match="more than"):
        unpacked(packed(many))
    with pytest.raises(BadDocument, match="longer"):
        unpacked(archive.header("a.so", 1 << 20) + archive.END)
    with pytest.raises(BadDocument):
        archive.entries(lambda _at, size: bytes(size), archive.RUNTIME.total_bytes + archive.BLOCK)


def _staged(disk: FakeDisk, data: bytes) -> Member:
    import hashlib

    store, digest = Store(disk), hashlib.sha256(data).hexdigest()
    disk.make_folder("staging/m")
    disk.write("staging/m/part", data)
    store.adopt("staging/m/part", digest)
    return Member("runtime", "engine", "1", digest)


def test_a_generation_has_its_runtime_s_files_beside_the_archive() -> None:
    disk = FakeDisk()
    files = {"libllama.so": b"code" * 999, "libggml.so": b""}
    member = _staged(disk, packed(files))
    number = Store(disk).make_generation(b"{}", [member])
    folder = f"generations/{number}/engine.d"
    assert {name: disk.read(f"{folder}/{name}", 1 << 20) for name in disk.names(folder)} == files


def test_a_damaged_runtime_makes_no_generation() -> None:
    disk = FakeDisk()
    member = _staged(disk, b"no archive" * 512)
    with pytest.raises(BadDocument):
        Store(disk).make_generation(b"{}", [member])
    assert [name for name in disk.names("generations") if name.isdigit()] == []


@settings(max_examples=60)
@given(st.integers(1, 40), st.sampled_from(["eio", "enospc"]))
def test_a_disk_that_fails_while_it_unpacks_leaves_no_generation(at: int, how: str) -> None:
    disk = FakeDisk()
    member = _staged(disk, packed({"libllama.so": b"code" * 99, "libggml.so": b"x"}))
    disk.count, disk.fail_at, disk.failure = 0, at, how
    try:
        Store(disk).make_generation(b"{}", [member])
    except (OtaError, NoSpace):
        whole = [name for name in disk.names("generations") if name.isdigit()]
        assert not whole or disk.names(f"generations/{whole[0]}/engine.d")
