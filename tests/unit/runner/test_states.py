"""The scratch directory of saved states: bounded, atomic, and nothing in it is trusted."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.runner.state_format import Facts
from stoker.runner.states import StateStore

TOKENS = list(range(100))
PAYLOAD = memoryview(bytes(1000))


def store(
    folder: Path, limit_bytes: int = 1 << 20, kind: str = "f16 lib", **more: object
) -> StateStore:
    made = StateStore(
        folder, limit_bytes=limit_bytes, fingerprint="model", kind=kind,
        run=more.get("run", lambda work: work()),  # type: ignore[arg-type]
    )  # fmt: skip
    made.open()
    return made


def facts(keep: str, scope: str = "7", fingerprint: str = "model") -> Facts:
    return Facts(fingerprint, "f16 lib", scope, keep)


def save(states: StateStore, keep: str, size: int = 1000) -> None:
    assert states.write(facts(keep), TOKENS, memoryview(bytes(size)))


def test_what_is_saved_is_found_by_the_next_runner(tmp_path: Path) -> None:
    save(store(tmp_path / "scratch"), "talk")
    again = store(tmp_path / "scratch")
    head = again.find("7", "talk", "")
    assert head is not None
    assert head.tokens == TOKENS
    payload = again.take(again.fetch(head))
    assert payload == PAYLOAD
    again.proven(head)
    assert store(tmp_path / "scratch").find("7", "talk", "") is not None


def test_files_are_for_the_owner_only_and_tell_no_names(tmp_path: Path) -> None:
    save(store(tmp_path / "scratch"), "talk")
    (file,) = (tmp_path / "scratch").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "scratch").stat().st_mode & 0o777 == 0o700
    assert "talk" not in file.name


@pytest.mark.parametrize(
    "harm",
    [
        lambda data: data[:-1],
        lambda data: data[:50],
        lambda data: b"",
        lambda data: b"NOTOURS!" + data[8:],
        lambda data: data + b"x",
    ],
)
def test_a_damaged_file_is_removed_with_a_line_in_the_log(
    tmp_path: Path, harm: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    save(store(tmp_path), "talk")
    (file,) = tmp_path.iterdir()
    file.write_bytes(harm(file.read_bytes()))
    with caplog.at_level(logging.WARNING):
        assert store(tmp_path).find("7", "talk", "") is None
    assert file.name in caplog.text
    assert not file.exists()


def test_a_flipped_byte_of_the_state_is_found_when_it_is_read(tmp_path: Path) -> None:
    save(store(tmp_path), "talk")
    (file,) = tmp_path.iterdir()
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    states = store(tmp_path)
    head = states.find("7", "talk", "")
    assert head is not None
    assert states.take(states.fetch(head)) is None
    assert list(tmp_path.iterdir()) == []


def test_a_state_under_which_the_engine_died_is_not_tried_again(tmp_path: Path) -> None:
    save(store(tmp_path), "talk")
    states = store(tmp_path)
    head = states.find("7", "talk", "")
    assert head is not None
    assert states.take(states.fetch(head)) is not None
    assert store(tmp_path).find("7", "talk", "") is None
    assert list(tmp_path.iterdir()) == []


def test_another_build_or_cell_type_makes_states_useless(tmp_path: Path) -> None:
    save(store(tmp_path), "talk")
    assert store(tmp_path, kind="q8_0 lib").find("7", "talk", "") is None
    assert list(tmp_path.iterdir()) == []


def test_the_bound_holds_and_the_least_recently_used_goes(tmp_path: Path) -> None:
    states = store(tmp_path, limit_bytes=5000)
    for number, keep in enumerate(("a", "b", "c")):
        save(states, keep)
        newest = max(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, (number, number))
    head = states.find("7", "a", "")
    assert head is not None
    states.take(states.fetch(head))
    states.proven(head)
    save(states, "d")
    assert states.total_bytes() <= 5000
    assert [states.find("7", keep, "") is not None for keep in "abcd"] == [True, False, True, True]


def test_the_same_conversation_replaces_its_state(tmp_path: Path) -> None:
    states = store(tmp_path, limit_bytes=4000)
    for size in (1000, 1500, 2000):
        save(states, "talk", size)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size > 2000


def test_a_state_over_the_bound_is_not_written(tmp_path: Path) -> None:
    states = store(tmp_path, limit_bytes=1200)
    assert not states.write(facts("talk"), TOKENS, memoryview(bytes(2000)))
    states.write(facts("talk"), TOKENS, PAYLOAD)  # with its head it is too large
    assert list(tmp_path.iterdir()) == []


def test_forget_reaches_a_file_that_is_being_written(tmp_path: Path) -> None:
    later: list[Callable[[], None]] = []
    states = store(tmp_path, run=later.append)
    save(states, "talk")
    assert states.busy
    assert not states.write(facts("other"), TOKENS, PAYLOAD), "one at a time"
    states.forget("7", "talk")
    later[0]()
    assert list(tmp_path.iterdir()) == []
    assert not states.busy
    save(states, "talk")
    states.forget("7", "other")
    later[1]()
    assert states.files == 1, "another one's forgetting is not mine"


def test_forget_takes_the_states_of_all_models(tmp_path: Path) -> None:
    states = store(tmp_path)
    save(states, "talk")
    states.write(facts("talk", fingerprint="another"), TOKENS, PAYLOAD)
    states.write(facts("talk", scope="8"), TOKENS, PAYLOAD)
    again = store(tmp_path)
    assert again.forget("7", "talk") == 2
    assert again.owners() == [("8", "talk")]
    assert again.forget("8") == 1


def test_forget_finds_what_an_older_runner_saved_at_its_end(tmp_path: Path) -> None:
    young, old = store(tmp_path), store(tmp_path)
    save(old, "talk")
    assert young.forget("7", "talk") == 1
    assert list(tmp_path.iterdir()) == []


def test_what_a_dead_writer_left_goes_and_a_living_one_is_let_be(tmp_path: Path) -> None:
    dead, living = tmp_path / "a.state.1.part", tmp_path / "b.state.2.part"
    dead.write_bytes(b"half")
    with living.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        store(tmp_path)
        assert living.exists()
    assert not dead.exists()


def test_a_full_disk_is_a_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    states = store(tmp_path)
    with caplog.at_level(logging.WARNING):
        save(states, "talk")
    assert "No space left" in caplog.text
    assert list(tmp_path.iterdir()) == []
    assert not states.busy
