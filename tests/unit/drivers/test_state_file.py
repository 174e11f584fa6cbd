"""The state file's contract, on disk and in memory; then what only a disk can do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.fakes.system import MemoryStateFile

from stoker.drivers.state_file import MAX_BYTES, JsonStateFile
from stoker.errors import InternalError
from stoker.ports.system import StateFile


@pytest.fixture(params=["disk", "memory"])
def state_file(request: pytest.FixtureRequest, tmp_path: Path) -> StateFile:
    if request.param == "disk":
        return JsonStateFile(tmp_path / "made" / "state.json")
    return MemoryStateFile()


def test_nothing_saved_reads_as_empty(state_file: StateFile) -> None:
    assert state_file.load() == {}


def test_what_was_saved_last_is_read_back(state_file: StateFile) -> None:
    state_file.save({"a": 1, "gone": True})
    state_file.save({"a": [2, "ö"]})
    assert state_file.load() == {"a": [2, "ö"]}


def test_what_is_no_json_is_refused_and_the_old_state_stays(state_file: StateFile) -> None:
    state_file.save({"a": 1})
    with pytest.raises(InternalError, match="cannot save"):
        state_file.save({"a": object()})
    assert state_file.load() == {"a": 1}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff\xff", b"[" * 100_000, b" " * (MAX_BYTES + 1)]
)
def test_an_unreadable_file_is_set_aside_and_reads_as_empty(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(content)
    file = JsonStateFile(path)
    assert file.load() == {}
    assert (tmp_path / "state.json.broken").read_bytes() == content
    file.save({"new": 1})
    assert file.load() == {"new": 1}


def test_a_fifo_in_its_place_does_not_hang_the_daemon(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    os.mkfifo(path)
    file = JsonStateFile(path)
    assert file.load() == {}
    file.save({"new": 1})
    assert file.load() == {"new": 1}


def test_a_cut_before_the_rename_leaves_the_old_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = JsonStateFile(tmp_path / "state.json")
    file.save({"a": 1})

    def cut(self: Path, target: Path) -> None:
        raise OSError(5, "power cut")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", cut)
        with pytest.raises(InternalError, match="power cut"):
            file.save({"a": 2})
    assert file.load() == {"a": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.json"]


def test_data_and_folder_are_synced_around_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    real_sync, real_replace = os.fsync, Path.replace

    def sync(descriptor: int) -> None:
        steps.append("folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "data")  # noqa: PTH112
        real_sync(descriptor)

    def replace(self: Path, target: Path) -> Path:
        steps.append("rename")
        return real_replace(self, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", replace)
    JsonStateFile(tmp_path / "state.json").save({"a": 1})
    assert steps == ["data", "rename", "folder"]


def test_others_cannot_read_the_state(tmp_path: Path) -> None:
    JsonStateFile(tmp_path / "state.json").save({"a": 1})
    assert (tmp_path / "state.json").stat().st_mode & 0o777 == 0o600


def test_a_link_in_the_place_of_the_temporary_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".state.json.new").symlink_to(victim)
    with pytest.raises(InternalError):
        JsonStateFile(tmp_path / "state.json").save({"a": 1})
    assert victim.read_text() == "precious"
