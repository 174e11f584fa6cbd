"""What time the fleet's judge believes, whatever issuers say and however the disk stumbles."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.fakes.disk import FakeDisk

from stoker.services.fleet_judge import FleetJudge
from stoker_ota.core.floors import Floors
from stoker_ota.services.store import Store

BUILT = datetime(2026, 1, 1, tzinfo=UTC)


class Wall:
    def __init__(self, moment: datetime, *, kept: bool) -> None:
        self.moment, self.kept = moment, kept

    def now(self) -> datetime:
        return self.moment

    def synchronised(self) -> bool:
        return self.kept

    def built(self) -> datetime:
        return BUILT

    def local_hour(self) -> int:
        return 0


def test_an_issuer_ahead_of_time_moves_only_a_clock_that_nobody_keeps() -> None:
    wall = Wall(BUILT + timedelta(days=2), kept=False)
    judge = FleetJudge(Store(FakeDisk()), lambda: b"", wall)
    ahead = BUILT + timedelta(days=400)
    judge.remember(ahead.timestamp())
    assert (judge.now().at_s, judge.now().trusted) == (ahead.timestamp(), False)
    wall.kept = True
    assert (judge.now().at_s, judge.now().trusted) == (wall.moment.timestamp(), True)


def test_floors_that_cannot_be_read_now_hold_as_they_were() -> None:
    disk = FakeDisk()
    store = Store(disk)
    store.save_floors(Floors(time=BUILT + timedelta(days=9)))
    judge = FleetJudge(store, lambda: b"", Wall(BUILT + timedelta(days=2), kept=True))
    assert not judge.now().trusted
    disk.unreadable = {"trust/floor.json", "trust/floor.json.bak"}
    assert not judge.now().trusted
