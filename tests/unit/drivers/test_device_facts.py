"""Hashes of model files: made when asked for, remembered while the file is the same."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from stoker.config.schema import DeviceConfig
from stoker.drivers import device_facts
from stoker.drivers.device_facts import DeviceClock, DeviceIdentity, KnownFiles


class Notes:
    def __init__(self) -> None:
        self.state: Mapping[str, object] = {}
        self.saves = 0

    def load(self) -> Mapping[str, object]:
        return self.state

    def save(self, state: Mapping[str, object]) -> None:
        self.state, self.saves = dict(state), self.saves + 1


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_file_is_hashed_once_and_again_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, notes = tmp_path / "m", Notes()
    file.write_bytes(b"one")
    os.utime(file, ns=(1, 1))
    paths = [str(file), str(tmp_path / "missing"), str(tmp_path)]
    assert KnownFiles(lambda: paths, notes).by_hash() == {sha(b"one"): str(file)}

    def never(*_words: object) -> None:
        raise AssertionError("hashed again")

    with monkeypatch.context() as patched:
        patched.setattr(device_facts, "_CHUNK", None)  # reading would fail
        again = KnownFiles(lambda: paths, notes)  # after a restart
        assert again.by_hash() == {sha(b"one"): str(file)}
    assert notes.saves == 1
    file.write_bytes(b"two")
    assert again.by_hash() == {sha(b"two"): str(file)}


def test_notes_that_are_damaged_are_no_hashes(tmp_path: Path) -> None:
    file, notes = tmp_path / "m", Notes()
    file.write_bytes(b"one")
    notes.state = {str(file): "nonsense", "x": [1]}
    assert KnownFiles(lambda: [str(file)], notes).by_hash() == {sha(b"one"): str(file)}


def test_the_device_says_what_targets_ask_for() -> None:
    me, wall = DeviceIdentity(DeviceConfig), DeviceClock()
    assert me.ram_mib() > 0
    assert me.arch() == os.uname().machine
    assert len(me.device_id()) == 32
    assert me.libc()
    assert wall.built() < wall.now()
    assert isinstance(wall.synchronised(), bool)
    assert 0 <= wall.local_hour() < 24


def test_the_id_is_made_of_the_machines_as_systemd_makes_it(tmp_path: Path) -> None:
    file = tmp_path / "machine-id"
    file.write_text("4387cd9c0e6e4a2b8d6c1a2b3c4d5e6f\n")
    assert DeviceIdentity(DeviceConfig, file).device_id() == "89c79676dc324b43acc1807668bdaf2c"


def test_a_machine_without_an_id_has_one_that_stays(tmp_path: Path) -> None:
    file = tmp_path / "machine-id"
    without = DeviceIdentity(DeviceConfig, file).device_id()
    file.write_text("uninitialized\n")
    assert len(without) == 32
    assert DeviceIdentity(DeviceConfig, file).device_id() == without


def test_what_is_configured_is_the_devices_id_and_its_labels() -> None:
    configured = DeviceConfig("pump-7", "eu", {"site": "north"})
    me = DeviceIdentity(lambda: configured)
    assert me.device_id() == "pump-7"
    assert me.labels() == {"site": "north", "region": "eu"}
