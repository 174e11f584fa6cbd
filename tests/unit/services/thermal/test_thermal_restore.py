"""The cap journal and what gives caps back: stop, next start, ExecStopPost."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.fakes.thermal import TOP_KHZ, Rig

from stoker.config.schema import ThermalConfig
from stoker.events.thermal import CapRecord
from stoker.services.thermal import restore_caps
from stoker.units import KiloHertz


def test_the_journal_is_there_before_the_first_write(rig: Rig) -> None:
    seen: list[tuple[CapRecord, ...]] = []
    original = rig.files.write

    def write(path: Path, text: str) -> None:
        seen.append(rig.journal.load())
        original(path, text)

    rig.ports.policies._write = write  # type: ignore[attr-defined]
    rig.warm_to(78.0)
    rig.run(60)
    assert seen
    assert [(r.original_khz, r.boot_id) for r in seen[0]] == [(TOP_KHZ, "this-boot")]


def test_without_a_journal_no_cap_is_written(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_records: object) -> None:
        raise OSError(errno.EROFS, "read-only")

    monkeypatch.setattr(rig.journal, "write", refuse)
    rig.warm_to(78.0)
    rig.run(60)
    assert rig.files.writes == []
    assert rig.service.snapshot().state == "watching"
    assert rig.service.snapshot().headroom < 1.0  # pacing still can help


def test_stop_gives_the_original_back_and_clears_the_journal(hot: Rig) -> None:
    hot.service.stop()
    assert hot.limit_khz() == TOP_KHZ
    assert hot.journal.load() == ()
    hot.service.stop()


def test_the_next_start_undoes_what_a_killed_daemon_left(hot: Rig) -> None:
    service = hot.new_service(ThermalConfig(enabled=False))
    service.start()
    service.stop()
    assert hot.limit_khz() == TOP_KHZ


def test_restore_leaves_a_foreign_value_alone(hot: Rig) -> None:
    hot.write_limit(1_450_000)
    assert [r.outcome for r in restore_caps(hot.ports)] == ["foreign"]
    assert hot.limit_khz() == 1_450_000


def test_restore_puts_a_lower_foreign_value_back(hot: Rig) -> None:
    hot.write_limit(600_000)
    assert [r.outcome for r in restore_caps(hot.ports)] == ["foreign"]
    assert hot.limit_khz() == 600_000


def test_restore_ignores_a_journal_of_another_boot(rig: Rig) -> None:
    rig.journal.write([CapRecord("policy0", KiloHertz(TOP_KHZ), KiloHertz(900_000), "old-boot")])
    rig.write_limit(900_000)
    assert restore_caps(rig.ports) == ()
    assert rig.limit_khz() == 900_000
    assert rig.journal.load() == ()


def test_restore_keeps_the_line_of_a_policy_that_refuses(hot: Rig) -> None:
    hot.files.faults["write:scaling_max_freq"] = errno.EIO
    assert [r.outcome for r in restore_caps(hot.ports)] == ["failed"]
    assert hot.journal.load() != ()
