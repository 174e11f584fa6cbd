"""Commands at the desk: one effect and one end, wherever a cut comes; what is refused; cancel."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.services.fleet_desk_rig import DESIRED, ME, Cut, Rig, good

from stoker.core.fleet_command import MAX_ATTEMPTS
from stoker.core.fleet_desired import Kept
from stoker.errors import ConfigInvalid, InvalidRequest, NotFound, StorageFailed
from stoker.events.fleet import FleetSnapshot
from stoker.services.fleet_desk import KEEP_RECORDS


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_a_command_is_done_once_and_its_answer_repeated(rig: Rig) -> None:
    rig.hear(good())
    rig.turns()
    assert rig.results() == ["accepted", "running", "succeeded"]
    rig.now_s = 10.0
    rig.hear(good())
    rig.hear(good())
    rig.turns()
    assert rig.deeds.effects == ["a"]
    assert rig.results() == ["accepted", "running", "succeeded", "succeeded"]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.booleans())
def test_a_cut_at_any_write_leaves_one_effect_and_one_end(cut_at: int, after: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(Path(folder))
        rig.store.cut_at, rig.store.after = cut_at, after
        try:
            rig.hear(good())
            rig.turns()
        except Cut:
            rig.reboot()
            rig.hear(good())  # it was not acknowledged, or somebody sends it again
            rig.turns()
        record = rig.store.command("a")
        assert record is not None
        assert record.state == "succeeded"
        assert rig.deeds.effects == ["a"]
        ends = {item["number"] for item in rig.told() if item["state"] == "succeeded"}
        assert len(ends) == 1  # whoever asks again hears the same
        rig.store.close()


def test_a_full_disk_keeps_the_end_until_it_can_be_written(rig: Rig) -> None:
    rig.store.full = True
    with pytest.raises(StorageFailed):
        rig.hear(good())
    assert rig.deeds.begun == []
    rig.store.full = False
    rig.hear(good())
    rig.deeds.held = {"work"}
    rig.turns()
    rig.deeds.held = set()
    rig.store.full = True
    with pytest.raises(StorageFailed):
        rig.turns()
    rig.store.full = False
    rig.turns()
    assert rig.deeds.begun == [("a", 1)]
    assert rig.results()[-1] == "succeeded"


def test_a_command_that_never_ends_the_agent_alive_is_given_up(rig: Rig) -> None:
    rig.deeds.held = {"work"}
    rig.hear(good())
    for _ in range(5):
        rig.turns()
        rig.reboot()
    rig.turns()
    record = rig.store.command("a")
    assert record is not None
    assert (record.state, record.code) == ("failed", "interrupted")
    assert len(rig.deeds.begun) == 3


def test_what_is_not_believed_leaves_nothing(rig: Rig) -> None:
    for payload in (b"", b"bad", b"\x00" * 130_000):
        rig.hear(payload)
    rig.hear(good(), retained=True)
    rig.hear(b"bad", DESIRED)
    rig.turns()
    assert rig.results() == []
    assert rig.deeds.begun == []
    assert rig.desk.forged == 4
    assert rig.store.recent(10) == []


def test_refusals_are_answered_once_and_not_kept(rig: Rig) -> None:
    rig.hear(good("x", "for-others"))
    rig.hear(good("x", "for-others"))
    assert rig.results() == ["rejected"]
    rig.judge.at_s = 3000.0
    rig.hear(good("y"))
    assert rig.results() == ["rejected", "expired"]
    assert rig.store.recent(10) == []


def test_a_replay_is_refused_when_the_database_was_lost(rig: Rig) -> None:
    rig.hear(good("a", sequence=7))
    rig.turns()
    rig.store.close()
    for file in rig.folder.glob("fleet.db*"):
        file.unlink()
    rig.start()
    rig.hear(good("a", sequence=7))
    rig.turns()
    assert rig.deeds.effects == ["a"]
    assert rig.results() == ["rejected"]
    rig.hear(good("b", sequence=8))
    rig.turns()
    assert rig.deeds.effects == ["a", "b"]


def test_forgotten_commands_stay_done(rig: Rig) -> None:
    rig.hear(good("a", sequence=7))
    rig.turns()
    rig.store.forget(5000.0, 0)
    assert rig.store.command("a") is None
    rig.hear(good("a", sequence=7))
    assert rig.results()[-1] == "rejected"


def test_updates_wait_for_each_other_and_others_do_not(rig: Rig) -> None:
    rig.deeds.held = {"update.install"}
    for number, word in enumerate(("update.install", "update.rollback", "report.state"), 1):
        rig.hear(good(str(number), word, number))
    rig.turns()
    assert [identity for identity, _ in rig.deeds.begun] == ["1", "3"]
    rig.deeds.held = set()
    rig.turns()
    assert [identity for identity, _ in rig.deeds.begun] == ["1", "3", "2"]


def test_cancel_reaches_what_waits_and_what_can_be_stopped(rig: Rig) -> None:
    rig.deeds.held = {"update.install"}
    rig.hear(good("1", "update.install", 1))
    rig.hear(good("2", "update.rollback", 2))
    rig.turns()
    rig.desk.cancel("2")
    rig.deeds.stoppable = False
    with pytest.raises(InvalidRequest):
        rig.desk.cancel("1")
    rig.deeds.stoppable = True
    rig.desk.cancel("1")
    rig.turns()
    states = {item.id: item.state for item in rig.store.recent(10)}
    assert states == {"1": "canceled", "2": "canceled"}
    with pytest.raises(NotFound):
        rig.desk.cancel("1")


def test_a_command_that_cancels_one_that_waits_in_the_same_turn(rig: Rig) -> None:
    rig.deeds.held = {"update.install"}
    for number, word in enumerate(("update.install", "update.rollback", "cancel"), 1):
        rig.hear(good(str(number), word, number))
    rig.turns()
    rig.deeds.held = set()
    rig.turns()
    assert rig.deeds.effects == ["1", "3"]


def test_a_command_that_cancels_one_behind_it(rig: Rig) -> None:
    rig.hear(good("1", "cancel", 1))
    rig.hear(good("2", "report.state", 2))
    rig.turns()
    assert rig.deeds.effects == ["1"]
    states = {item.id: item.state for item in rig.store.recent(10)}
    assert states == {"1": "succeeded", "2": "canceled"}


def test_a_fault_of_ours_ends_its_command_only(rig: Rig) -> None:
    rig.hear(good("1", "broken", 1))
    rig.hear(good("2", "report.state", 2))
    rig.turns()
    states = {item.id: (item.state, item.code) for item in rig.store.recent(10)}
    assert states == {"1": ("failed", "internal"), "2": ("succeeded", "")}


def test_a_command_that_waited_past_its_expiry_is_not_begun(rig: Rig) -> None:
    rig.deeds.held = {"update.install"}
    rig.hear(good("1", "update.install", 1))
    rig.hear(good("2", "update.rollback", 2))
    rig.turns()
    rig.judge.at_s = 3000.0
    rig.deeds.held = set()
    rig.turns()
    states = {item.id: item.state for item in rig.store.recent(10)}
    assert states == {"1": "succeeded", "2": "expired"}


def test_a_wish_is_tried_once_and_a_newer_one_takes_its_place(rig: Rig) -> None:
    def wish(version: int, deployment: str) -> None:
        sections = {"update": {"deployment": deployment}}
        rig.judge.kept = Kept(f"d:{ME}", version, 9000.0, sections)
        rig.hear(b"state", DESIRED)
        rig.turns()

    rig.deeds.held = {"update.install"}
    wish(1, "one")
    wish(2, "one")
    assert len(rig.deeds.begun) == 1
    wish(3, "two")
    rig.turns()
    assert [item.state for item in reversed(rig.store.recent(9))] == ["canceled", "running"]
    rig.reboot()
    rig.turns()
    rig.deeds.held = set()
    rig.turns()
    wish(3, "one")  # a replay
    assert rig.store.desired()[f"d:{ME}"].version == 3
    assert len(rig.store.recent(9)) == 2
    wish(4, "one")
    assert len(rig.store.recent(9)) == 3


def test_a_newer_wish_waits_for_an_older_one_that_can_no_longer_be_stopped(rig: Rig) -> None:
    rig.deeds.held, rig.deeds.stoppable = {"update.install"}, False
    for version, name in ((1, "one"), (2, "two")):
        rig.judge.kept = Kept(f"d:{ME}", version, 9000.0, {"update": {"deployment": name}})
        rig.hear(b"state", DESIRED)
        rig.turns()
    assert [item.state for item in reversed(rig.store.recent(9))] == ["running", "accepted"]
    rig.deeds.held = set()
    rig.turns()
    assert [item.state for item in rig.store.recent(9)] == ["succeeded", "succeeded"]


def test_a_device_without_trust_says_why_it_believes_nobody(rig: Rig) -> None:
    rig.judge.untrusting = ConfigInvalid("cannot check signatures: no file")
    rig.reboot()
    assert rig.desk.snapshot(FleetSnapshot()).warnings == ("cannot check signatures: no file",)
    rig.judge.untrusting = None  # the keys were put there: nobody told us
    assert rig.desk.snapshot(FleetSnapshot()).warnings == ()


def test_a_trust_that_has_gone_is_told_once_somebody_is_not_believed(rig: Rig) -> None:
    assert rig.desk.snapshot(FleetSnapshot()).warnings == ()
    rig.judge.untrusting = ConfigInvalid("cannot check signatures: no file")
    rig.hear(b"bad")
    assert rig.desk.snapshot(FleetSnapshot()).warnings == ("cannot check signatures: no file",)


def test_a_state_for_somebody_else_is_not_believed(rig: Rig) -> None:
    rig.judge.kept = Kept("d:dev-2", 1, 9000.0, {})
    rig.hear(b"state", DESIRED)
    rig.judge.kept = Kept("g:blue", 1, 9000.0, {})
    rig.hear(b"state", "stoker/1/g/blue/desired")
    assert rig.desk.forged == 2
    assert rig.store.desired() == {}


def test_groups_are_those_of_the_own_document(rig: Rig) -> None:
    rig.judge.kept = Kept(f"d:{ME}", 1, 9000.0, {}, ("blue",))
    rig.hear(b"state", DESIRED)
    assert rig.desk.groups == ("blue",)
    assert rig.desk.subscriptions()[2:] == ("stoker/1/g/blue/desired", "stoker/1/g/blue/cmd")
    snapshot = rig.desk.snapshot(FleetSnapshot())
    assert snapshot.desired == {f"d:{ME}": 1}


@pytest.mark.parametrize("pair", [("policy.set", "model.activate"), ("policy.set", "policy.set")])
def test_policies_and_models_wait_for_each_other(rig: Rig, pair: tuple[str, str]) -> None:
    rig.deeds.held = set(pair)
    for number, word in enumerate(pair, 1):
        rig.hear(good(str(number), word, number))
    rig.turns()
    assert [identity for identity, _ in rig.deeds.begun] == ["1"]
    rig.deeds.held.clear()
    rig.turns()
    assert [identity for identity, _ in rig.deeds.begun] == ["1", "2"]


def test_restarts_of_the_agent_do_not_end_a_long_update_that_goes_on(rig: Rig) -> None:
    rig.deeds.held = {"work"}
    rig.hear(good("1", "work", 1))
    rig.turns()
    rig.deeds.adopting = True
    for _ in range(2 * MAX_ATTEMPTS):
        rig.reboot()
        rig.turns()
    assert rig.results()[-1] == "running"
    rig.deeds.held.clear()
    rig.turns()
    assert rig.results()[-1] == "succeeded"


def test_records_are_bounded_when_nobody_keeps_the_clock(rig: Rig) -> None:
    rig.judge.trusted = False
    for number in range(KEEP_RECORDS + 40):
        rig.hear(good(str(number), "work", number + 1))
        rig.turns(2)
    rig.desk.tidy()
    assert len(rig.store.recent(9999)) == KEEP_RECORDS
    before = len(rig.deeds.effects)
    rig.hear(good("0", "work", 1))  # forgotten, and still not done again
    rig.turns()
    assert len(rig.deeds.effects) == before
    assert rig.results()[-1] == "rejected"
