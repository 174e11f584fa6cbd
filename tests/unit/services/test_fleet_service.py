"""The fleet's turn: what is acknowledged when, and what a failing disk or a fault of ours does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fakes.system import MemoryStateFile
from tests.unit.services.fleet_desk_rig import CMD, Judge, good
from tests.unit.services.fleet_desk_rig import Rig as DeskRig
from tests.unit.services.test_fleet_link import PlayedBroker

from stoker.core.fleet_outbox import Caps
from stoker.core.fleet_session import Pace
from stoker.errors import StorageFailed
from stoker.events.fleet import Connected, FleetSnapshot, Message, Record
from stoker.ports.fleet import Addressee, FleetListener
from stoker.services import fleet
from stoker.services.fleet import Fleet, FleetService
from stoker.services.fleet_inbox import MAX_MESSAGES
from stoker.services.fleet_link import FleetLink, Parts
from stoker_ota.core.topics import Topics


class Broker(PlayedBroker):
    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self._log = log

    def acknowledge(self, message: Message) -> None:
        self._log.append(f"ack {message.token}")


class Quiet:
    """A reporter and a guest that say nothing."""

    def turn(self, *_: object) -> None: ...
    def connected(self) -> None: ...
    def now(self) -> None: ...

    def wake_s(self) -> float:
        return 0.0

    def subscriptions(self) -> tuple[str, ...]:
        return ()

    def heard(self, _message: Message) -> bool:
        return False


class FaultyJudge(Judge):
    def command(self, data: bytes) -> tuple[Record, str, Callable[[Addressee], bool]]:
        if data == b"fault":
            raise RuntimeError("a fault of ours")
        return super().command(data)


class Rig:
    def __init__(self, folder: Path) -> None:
        self.log: list[str] = []
        self.holds: list[bool] = []
        self.now_s = 1000.0
        self.base = DeskRig(folder, judge=FaultyJudge(), twin=MemoryStateFile())
        self.broker, store = Broker(self.log), self.base.store
        parts = Parts(
            self.broker, store, lambda: self.now_s, lambda: 0.0, Caps(10**6, 1e9),
            wall_s=lambda: self.now_s, pace=Pace(), clock_word=lambda: "ok",
        )  # fmt: skip
        link = FleetLink(parts, "dev-1", "status")
        quiet = Quiet()
        made = Fleet(
            store, self.broker, link, self.base.desk, quiet, quiet,  # type: ignore[arg-type]
            Topics(), "dev-1", "unix:/x", self.holds.append, lambda: self.now_s,
        )  # fmt: skip
        self.service = FleetService(lambda _service: made, "dev-1", "unix:/x")
        self.seen: list[FleetSnapshot] = []
        self.service.listen(FleetListener(self.seen.append))
        self.link = link

    def turn(self) -> None:
        """As the thread does it."""
        self.service.wake()
        self.service._round()

    def online(self) -> None:
        self.turn()
        self.service.tell(Connected(len(self.broker.logins)))
        self.turn()

    def hear(self, payload: bytes, token: int = 7) -> None:
        self.service.tell(Message(len(self.broker.logins), CMD, payload, token=token))
        self.turn()


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setattr(fleet, "TROUBLE_S", 0.0)
    return Rig(tmp_path)


def test_a_command_is_acknowledged_once_it_is_kept(rig: Rig) -> None:
    rig.online()
    rig.hear(good())
    assert rig.log == ["ack 7"]
    assert rig.base.store.command("a") is not None
    assert rig.seen[-1].state == "online"


def test_what_cannot_be_kept_is_not_acknowledged_and_comes_again(rig: Rig) -> None:
    rig.online()
    rig.base.store.full = True
    rig.hear(good())
    assert rig.log == []
    assert rig.broker.drops >= 1
    assert rig.seen[-1].problem_code == "storage"
    assert not rig.link.online
    rig.base.store.full = False
    rig.now_s += 1000.0
    rig.online()
    rig.hear(good(), 8)
    assert rig.log == ["ack 8"]
    assert rig.base.deeds.effects == ["a"]


def test_a_message_that_finds_a_fault_of_ours_does_not_come_for_ever(rig: Rig) -> None:
    rig.online()
    rig.hear(b"fault")
    assert rig.log == ["ack 7"]
    assert rig.base.desk.forged == 1
    rig.hear(good(), 8)
    assert rig.base.deeds.effects == ["a"]


def test_a_disk_that_fails_at_the_start_is_tried_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise StorageFailed("cannot open fleet records: the disk is ill")

    with monkeypatch.context() as patch:
        patch.setattr(rig.base.store, "open", fails)
        rig.turn()
        assert rig.seen[-1].problem_code == "storage"
    rig.online()
    rig.hear(good())
    assert rig.base.deeds.effects == ["a"]


def test_a_pause_is_kept_and_held_again(rig: Rig) -> None:
    rig.online()
    rig.service.pause(True)
    assert rig.holds == [True]
    assert rig.base.store.note("paused") == "1"
    rig.service.pause(False)
    assert rig.base.store.note("paused") == ""


def test_a_document_that_does_not_come_is_nothing(rig: Rig) -> None:
    rig.online()
    found = rig.service.fetch("stoker/1/trust/2")
    assert rig.broker.subscribed[-1] == ("stoker/1/trust/2",)
    rig.service.tell(Message(1, "stoker/1/trust/2", b"document"))
    rig.turn()
    assert found.result(0) == b"document"
    late = rig.service.fetch("stoker/1/trust/3")
    rig.now_s += 6.0
    rig.turn()
    assert late.result(0) == b""
    assert rig.broker.gone[-1] == ("stoker/1/trust/3",)


def test_a_full_disk_does_not_keep_the_link_from_its_turn(rig: Rig) -> None:
    rig.online()
    rig.base.deeds.held = {"work"}
    rig.hear(good("a", "work"))
    rig.base.store.full = True
    rig.base.deeds.held.clear()
    rig.turn()
    assert rig.link.online
    assert "disk is full" in rig.link.storage
    rig.base.store.full = False
    rig.now_s += 100.0
    rig.turn()
    rig.turn()
    assert rig.link.storage == ""
    assert rig.base.results()[-1] == "succeeded"


def test_a_store_that_is_full_gets_room_before_anything_is_written(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(rig.base.desk, "tidy", lambda: done.append("tidy"))
    monkeypatch.setattr(rig.base.desk, "turn", lambda: done.append("turn"))
    rig.turn()
    assert done == ["tidy", "turn"]


def test_a_flood_is_hung_up_on_and_holds_up_nobody(rig: Rig) -> None:
    rig.online()
    for number in range(MAX_MESSAGES + 20):
        rig.service.tell(Message(1, "t", b"", token=number + 1))
    rig.turn()
    assert rig.log == [f"ack {number + 1}" for number in range(MAX_MESSAGES)]
    assert not rig.link.online
    rig.now_s += 1000.0
    rig.online()
    for _ in range(MAX_MESSAGES + 5):  # of QoS 0: lost, as it may be
        rig.service.tell(Message(2, "t", b""))
    rig.turn()
    assert rig.link.online
