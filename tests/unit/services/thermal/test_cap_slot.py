"""One slot for the owner and us: our own cap is never taken for the owner's, nor another limit."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest
from tests.fakes.cap_slot import STEPS, TOP, Device, Killed
from tests.fakes.thermal import TOP_KHZ, Rig

from stoker.config.schema import ThermalConfig
from stoker.core.caps import SetCap
from stoker.core.thermal_plan import GRANT
from stoker.events.thermal import CapRecord
from stoker.services.cap_writer import CapWriter
from stoker.services.thermal import restore_caps
from stoker.units import KiloHertz

LIMIT = "scaling_max_freq"


def ends_as_it_began(rig: Rig) -> None:
    """Cool again the cap goes, and so it does with a stop while it is hot."""
    rig.run(120)
    assert {line.original_khz for line in rig.journal.load()} <= {TOP_KHZ}
    rig.service.stop()
    assert rig.limit_khz() == TOP_KHZ
    assert rig.journal.load() == ()


@pytest.mark.parametrize("name", ["EBUSY", "EIO", "EINTR"])
def test_one_failed_read_of_the_cap_forgets_nothing(hot: Rig, name: str) -> None:
    before = hot.service.snapshot().cap_khz
    hot.files.faults[LIMIT] = getattr(errno, name)
    hot.service.tick()
    assert hot.service.snapshot().cap_khz == before
    hot.files.faults.clear()
    ends_as_it_began(hot)


def test_a_policy_that_comes_back_with_our_cap_is_given_its_own_back(hot: Rig) -> None:
    """Linux keeps the request of a policy whose CPUs are offline."""
    directory = hot.board.policy_dir("policy0")
    directory.rename(hot.board.root / "away")
    hot.run(4)
    assert hot.service.snapshot().cap_khz == {}
    (hot.board.root / "away").rename(directory)
    ends_as_it_began(hot)


@pytest.mark.parametrize("load", [0.0, 1.0])
def test_a_refused_write_forgets_nothing_and_is_tried_again(hot: Rig, load: float) -> None:
    hot.files.faults[f"write:{LIMIT}"] = errno.EIO
    hot.run(20, load)
    hot.files.faults.clear()
    hot.run(60, load)
    assert load or hot.limit_khz() == TOP_KHZ
    ends_as_it_began(hot)


def test_a_journal_that_is_full_for_a_while_costs_only_time(
    hot: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_records: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patched:
        patched.setattr(hot.journal, "write", full)
        hot.run(20, load=0.0)
        assert "journal" in hot.service.snapshot().reason
    hot.run(60, load=0.0)
    assert hot.limit_khz() == TOP_KHZ
    ends_as_it_began(hot)


def test_what_the_next_start_could_not_undo_is_undone_later(hot: Rig) -> None:
    hot.files.faults[f"write:{LIMIT}"] = errno.EIO
    hot.service = hot.new_service()
    hot.service._writer.restore()
    hot.files.faults.clear()
    hot.run(5, load=0.0)
    assert hot.limit_khz() == TOP_KHZ
    hot.run(60)
    ends_as_it_began(hot)


def test_a_stop_while_the_policy_is_offline_is_made_good_by_the_next_start(hot: Rig) -> None:
    hot.files.faults.update({"cpuinfo_min_freq": errno.EBUSY, LIMIT: errno.EBUSY})
    hot.service.stop()
    assert hot.journal.load()
    assert [done.outcome for done in restore_caps(hot.ports)] == ["gone"]
    hot.files.faults.clear()
    assert [done.outcome for done in restore_caps(hot.ports)] == ["restored"]
    ends_as_it_began(hot)


def test_a_journal_that_cannot_be_read_is_not_written_over() -> None:
    device = Device()
    device.run(79.0)
    capped = device.slot.khz
    assert capped < TOP
    device.journal.fault = "unreadable"
    device.start()
    device.run(84.0)
    assert device.slot.khz == capped
    device.recover()
    assert device.slot.khz == TOP


def test_a_lost_journal_is_remembered_by_the_loop_that_wrote_it() -> None:
    device = Device()
    device.run(79.0)
    device.journal.records = ()
    device.service.stop()
    assert device.slot.khz == TOP


# Others' limits.


@pytest.mark.parametrize("lifted", [False, True])
def test_another_limit_never_gets_into_the_slot(lifted: bool) -> None:
    """_PPC on battery, or a cooling device: the readback is low, the slot is not."""
    device = Device()
    device.slot.limit_khz = KiloHertz(1_200_000)
    device.run(79.0)
    assert device.slot.khz < device.slot.limit_khz
    if lifted:
        device.slot.limit_khz = TOP
    device.run(40.0, 60.0)
    assert device.slot.khz == (TOP if lifted else 1_300_000)  # a step above what others grant
    device.run(79.0)
    device.service.stop()
    assert device.slot.khz == TOP


@pytest.mark.parametrize("first_c", [40.0, 79.0])
def test_the_owners_own_limit_goes_back_also_after_a_start_while_hot(first_c: float) -> None:
    device = Device(KiloHertz(1_200_000))
    device.temperature_c = first_c
    device.run(79.0)
    assert device.slot.khz < 1_200_000
    assert max(khz for khz in device.slot.writes if khz != TOP) <= 1_200_000
    device.run(40.0, 60.0)
    assert device.slot.khz == 1_200_000


def test_the_probe_of_the_slot_waits_for_the_kernel() -> None:
    device = Device(KiloHertz(1_200_000))
    device.slot.late = 3
    device.run(79.0)
    device.service.stop()
    assert device.slot.khz == 1_200_000


def test_a_start_that_probed_the_slot_waits_until_its_proof_is_gone() -> None:
    """Killed between journal and first write: the next start finds the owner's value by writing
    the top, gives it back, and must not read the top a moment later as the owner's."""
    device = Device(KiloHertz(900_000))
    device.slot.late, device.slot.write = 2, "dies before"
    with pytest.raises(Killed):
        device.run(79.0)
    device.slot.write = ""
    device.start()
    assert {line.original_khz for line in device.journal.records} <= {900_000}
    device.recover()
    assert device.slot.khz == 900_000


def test_a_turbo_that_was_off_while_we_capped_is_not_lost() -> None:
    device = Device()
    low = KiloHertz(1_000_000)
    device.journal.records = (CapRecord("policy0", low, STEPS[0], "boot", free=True),)
    device.slot.khz = STEPS[0]
    restore_caps(device.ports)
    assert device.slot.khz == TOP


def test_restore_tells_another_limit_from_somebody_elses_value() -> None:
    device = Device()
    device.run(79.0)
    device.slot.limit_khz = STEPS[0]
    restore_caps(device.ports)
    assert device.slot.khz == TOP


def test_a_lower_writer_is_named_and_its_value_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    device = Device()
    device.run(78.0)
    device.slot.khz = KiloHertz(550_000)
    with caplog.at_level(logging.WARNING, "stoker"):
        device.run(40.0, 10.0)
    assert "another program set policy0 to 550000 kHz below our cap" in caplog.text
    assert "below our cap" in device.service.snapshot().reason
    device.run(40.0, 90.0)
    assert device.slot.khz == 550_000
    assert device.service.snapshot().reason == ""
    device.service.stop()
    assert device.slot.khz == 550_000


# What is said, and the end.


@pytest.mark.parametrize("config", [ThermalConfig(actuate=False), ThermalConfig(enabled=False)])
def test_a_loop_that_is_told_to_cap_no_more_gives_its_caps_back(
    hot: Rig, config: ThermalConfig
) -> None:
    hot.files.faults[f"write:{LIMIT}"] = errno.EBUSY
    hot.service.reconfigure(config)
    hot.run(3)
    assert hot.limit_khz() < TOP_KHZ
    hot.files.faults.clear()
    hot.run(35)
    assert hot.limit_khz() == TOP_KHZ
    assert hot.journal.load() == ()


def test_a_loop_that_is_switched_off_lets_inference_go_on(hot: Rig) -> None:
    hot.files.faults["thermal_zone0/temp"] = errno.EIO
    hot.run(12)
    hot.service.reconfigure(ThermalConfig(enabled=False))
    hot.run(2)
    assert hot.pauses == [True, False]


@pytest.mark.parametrize(("name", "granted"), [("EACCES", True), ("EROFS", True), ("EIO", False)])
def test_a_refused_cap_names_the_file_the_errno_and_who_grants_it(
    rig: Rig, name: str, granted: bool
) -> None:
    rig.files.faults[f"write:{LIMIT}"] = getattr(errno, name)
    rig.warm_to(78.0)
    rig.run(30)
    reason = rig.service.snapshot().reason
    assert f"policy0/{LIMIT}: {name}" in reason
    assert (GRANT in reason) is granted


def test_after_the_end_a_late_tick_writes_no_cap_again(hot: Rig) -> None:
    hot.service.stop()
    writes = len(hot.files.writes)
    hot.run(60)
    assert len(hot.files.writes) == writes
    assert hot.limit_khz() == TOP_KHZ


def test_the_end_does_not_wait_for_a_write_that_hangs(
    hot: Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("stoker.services.cap_writer.END_S", 0.01)
    writer = CapWriter(hot.ports)
    ended: list[object] = []
    (policy,) = hot.ports.policies.discover()

    def hangs(*_args: object) -> bool:
        ended.append(writer.end())
        return True

    with monkeypatch.context() as patched:
        patched.setattr(hot.ports.policies, "set_cap", hangs)
        writer.apply(SetCap("policy0", KiloHertz(600_000), KiloHertz(TOP_KHZ)), policy)
    assert ended == [()]
    assert hot.journal.load()
    assert restore_caps(hot.ports)[0].outcome == "restored"


def test_a_cap_that_cannot_be_read_for_long_leaves_the_wall_to_pacing_and_is_told(hot: Rig) -> None:
    hot.files.faults[LIMIT] = errno.EIO
    hot.run(2.0)
    assert "pacing" not in hot.service.snapshot().actuator  # it may come back
    hot.run(10.0)
    seen = hot.service.snapshot()
    assert (seen.state, seen.actuator, seen.duty) == ("watching", "pacing", seen.headroom)
    assert "policy0: scaling_max_freq cannot be read" in seen.reason
    hot.files.faults.clear()
    hot.run(10.0)
    assert (hot.service.snapshot().state, hot.service.snapshot().actuator) == ("ok", "cpufreq")
    ends_as_it_began(hot)
