"""The store under power cuts at every operation: always the old set or the new one."""

from __future__ import annotations

import contextlib
import hashlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.disk import FakeDisk, PowerCutError

from stoker_ota.core.floors import Floors
from stoker_ota.core.machine import serving
from stoker_ota.errors import FileUnreadable, OtaError
from stoker_ota.services import store as store_module
from stoker_ota.services.store import Store
from stoker_ota.values.deployment import Journal, Member, Offer, Phase

OLD, NEW = b"the old model", b"the new model"


def _member(data: bytes) -> Member:
    return Member("model", "chat", "1", hashlib.sha256(data).hexdigest())


def _bring(store: Store, disk: FakeDisk, data: bytes) -> Member:
    disk.make_folder("staging/m")
    disk.write("staging/m/part", data)
    member = _member(data)
    store.adopt("staging/m/part", member.sha256)
    return member


def _installed(disk: FakeDisk) -> Store:
    store = Store(disk)
    number = store.make_generation(b"{}", [_bring(store, disk, OLD)])
    store.activate(number, previous=0)
    store.save_floors(Floors(documents={"catalog": 1}))
    store.save_journal(Journal())
    return store


def _update(store: Store, disk: FakeDisk) -> None:
    """Everything an update does to the disk, in the machine's order."""
    offer = Offer("chat", 2, "ab" * 32)
    store.save_journal(Journal(Phase.FETCHING, offer))
    member = _bring(store, disk, NEW)
    number = store.make_generation(b"{}", [member])
    store.save_journal(Journal(Phase.ACTIVATING, offer, generation=number, previous=1))
    store.activate(number, previous=1)
    store.record({"what": "activated", "generation": number})
    store.save_journal(Journal(Phase.COMMITTED, offer, generation=number, previous=1))
    store.save_floors(Floors(documents={"catalog": 2}))
    store.save_journal(Journal())
    store.collect(Journal())


def _content(disk: FakeDisk, store: Store) -> bytes | None:
    number = store.current()
    if number == 0:
        return None
    (member,) = store.members(number)
    data = disk.read(store.object_path(member.sha256), 1 << 20)
    assert data is not None
    assert hashlib.sha256(data).hexdigest() == member.sha256
    assert disk.read(f"generations/{number}/{member.name}", 1 << 20) == data
    return data


def _operations() -> int:
    disk = FakeDisk()
    store = _installed(disk)
    before = disk.count
    _update(store, disk)
    return disk.count - before


OPERATIONS = _operations()


def test_there_are_operations_to_cut() -> None:
    assert OPERATIONS > 40


@pytest.mark.parametrize("at", range(1, OPERATIONS + 1))
def test_a_cut_before_any_operation_leaves_the_old_set_or_the_new_one(at: int) -> None:
    for seed in range(12):
        disk = FakeDisk()
        store = _installed(disk)
        disk.cut_at = disk.count + at
        with pytest.raises(PowerCutError):
            _update(store, disk)
        after = disk.after_cut(random.Random(seed))
        again = Store(after)
        assert _content(after, again) in (OLD, NEW)
        assert again.floors().document("catalog") in (1, 2)
        again.journal()
        again.record({"what": "started"})
        assert again.history().records[-1] == {"what": "started"}
        _update(again, after)  # and the next update goes through
        assert _content(after, again) == NEW


@pytest.mark.parametrize("at", range(1, OPERATIONS + 1))
@pytest.mark.parametrize("failure", ["eio", "enospc"])
def test_an_error_at_any_operation_is_typed_and_leaves_a_whole_set(at: int, failure: str) -> None:
    disk = FakeDisk(failure=failure)
    store = _installed(disk)
    disk.fail_at = disk.count + at
    with pytest.raises(OtaError):
        _update(store, disk)
    assert _content(disk, store) in (OLD, NEW)
    _update(store, disk)
    assert _content(disk, store) == NEW


@settings(max_examples=60)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=4), st.integers(0, 1 << 30))
def test_cuts_upon_cuts_never_leave_the_device_without_a_set(cuts: list[int], seed: int) -> None:
    chance = random.Random(seed)
    disk = FakeDisk()
    _installed(disk)
    for cut in cuts:
        store = Store(disk)
        disk.cut_at = disk.count + cut
        try:
            _update(store, disk)
        except PowerCutError:
            disk = disk.after_cut(chance)
        assert _content(disk, Store(disk)) in (OLD, NEW)


def test_a_result_with_another_hash_is_removed_and_refused() -> None:
    disk = FakeDisk()
    store = Store(disk)
    disk.make_folder("staging/m")
    disk.write("staging/m/part", b"something else")
    with pytest.raises(OtaError, match="its content"):
        store.adopt("staging/m/part", "00" * 32)
    assert disk.names("staging/m") == ()


def test_an_unreadable_journal_is_put_aside_and_told_from_the_tree() -> None:
    disk = FakeDisk()
    store = _installed(disk)
    disk.write("state.json", b"{half")
    assert store.journal() == Journal(previous=0)
    assert "state.json.broken" in disk.names(".")


def test_one_damaged_copy_of_the_floors_loses_nothing() -> None:
    for path in ("trust/floor.json", "trust/floor.json.bak"):
        disk = FakeDisk()
        store = _installed(disk)
        disk.write(path, b"junk")
        assert store.floors().document("catalog") == 1


def test_a_history_line_that_was_changed_or_taken_out_shows() -> None:
    disk = FakeDisk()
    store = Store(disk)
    for number in range(4):
        store.record({"number": number})
    data = disk.read("history.jsonl", 1 << 20)
    assert data is not None
    assert store.history().whole
    lines = data.splitlines(keepends=True)
    disk.write("history.jsonl", lines[0] + lines[2] + lines[3])
    assert not store.history().whole
    disk.write("history.jsonl", data.replace(b'"number":1', b'"number":7'))
    assert not store.history().whole


@pytest.mark.parametrize("damage", ["unreadable", "damaged"])
def test_what_a_kept_set_needs_is_never_guessed(damage: str) -> None:
    disk = FakeDisk()
    store = _installed(disk)
    if damage == "damaged":
        disk.write("generations/1/set.json", b"{half")
    else:
        disk.unreadable = {"generations/1/set.json"}
    with contextlib.suppress(OtaError):
        store.collect(Journal())
    assert store.has(_member(OLD).sha256)


@pytest.mark.parametrize("path", ["current", "previous", "generations"])
def test_a_link_or_a_folder_that_cannot_be_read_is_not_taken_for_gone(path: str) -> None:
    disk = FakeDisk()
    store = _installed(disk)
    store.activate(1, previous=1)
    disk.unreadable = {path}
    with pytest.raises(FileUnreadable):
        store.collect(Journal())
    disk.unreadable = set()
    assert _content(disk, store) == OLD


def test_floors_that_cannot_be_read_are_not_begun_anew() -> None:
    disk = FakeDisk()
    store = _installed(disk)
    disk.unreadable = {"trust/floor.json"}
    assert store.floors().document("catalog") == 1
    disk.unreadable |= {"trust/floor.json.bak"}
    with pytest.raises(FileUnreadable):
        store.floors()


def test_an_error_of_any_read_of_an_update_is_typed_and_leaves_a_whole_set() -> None:
    disk = FakeDisk()
    store = _installed(disk)
    before = disk.reads
    _update(store, disk)
    for at in range(1, disk.reads - before + 1):
        disk = FakeDisk()
        store = _installed(disk)
        disk.fail_read_at = disk.reads + at
        with contextlib.suppress(OtaError):
            _update(store, disk)
        assert _content(disk, store) in (OLD, NEW)
        assert store.floors().document("catalog") in (1, 2)
        _update(store, disk)
        assert _content(disk, store) == NEW


def _history(count: int) -> tuple[FakeDisk, Store]:
    disk = FakeDisk()
    store = Store(disk)
    for number in range(count):
        store.record({"what": str(number)})
    return disk, store


def test_a_record_after_a_changed_line_neither_cuts_the_rest_nor_mends_the_chain() -> None:
    disk, store = _history(10)
    data = disk.read("history.jsonl", 1 << 20)
    assert data is not None
    changed = data.replace(b'"what":"3"', b'"what":"X"')
    disk.write("history.jsonl", changed)
    store.record({"what": "next"})
    found = store.history()
    assert (found.whole, found.records[-1]) == (False, {"what": "next"})
    assert disk.read("history.jsonl.broken", 1 << 20) == changed
    store.record({"what": "one more"})
    assert not store.history().whole


def test_a_history_that_cannot_be_read_keeps_no_update_from_its_commit() -> None:
    disk, store = _history(3)
    disk.unreadable = {"history.jsonl"}
    store.record({"what": "next"})
    assert not store.history().whole


def test_the_file_before_this_one_is_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_HISTORY_BYTES", 1000)
    disk, store = _history(12)
    assert disk.read("history.1.jsonl", 1 << 20)
    found = store.history()
    assert found.whole
    assert [record["what"] for record in found.records][-9:] == [str(n) for n in range(3, 12)]
    lines = (disk.read("history.1.jsonl", 1 << 20) or b"").splitlines(keepends=True)
    disk.write("history.1.jsonl", b"".join(lines[:-1]))  # between both something is gone
    assert not store.history().whole


@pytest.mark.parametrize("lost", [b"{half", None])
def test_a_set_whose_trial_was_not_over_is_left_when_the_journal_is_lost(
    lost: bytes | None,
) -> None:
    disk = FakeDisk()
    store = _installed(disk)
    number = store.make_generation(b"{}", [_bring(store, disk, NEW)])
    store.mark_trial(number)
    store.activate(number, previous=1)
    if lost is None:
        disk.remove("state.json")
    else:
        disk.write("state.json", lost)
    found = store.journal()
    assert (found.phase, found.previous, serving(found, number)) == (Phase.ROLLING_BACK, 1, 1)
    store.end_trial(number)
    assert serving(store.journal(), number) == number
