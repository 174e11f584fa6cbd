"""A fleet desk on a real store whose power can be cut, with a judge and deeds that behave."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.fakes.system import MemoryStateFile

from stoker.core.fleet_desired import Kept
from stoker.drivers.fleet_store import SqliteFleetStore
from stoker.errors import BadSignature, ConfigInvalid, InvalidRequest, StorageFailed
from stoker.events.fleet import Message, Record
from stoker.ports.fleet import Addressee, Letter, Moment
from stoker.services.fleet_desk import Desk, FleetDesk
from stoker.services.fleet_outcome import ADOPTED, Deed, Outcome
from stoker_ota.core.topics import Topics

ME = "dev-1"
CMD, DESIRED = f"stoker/1/d/{ME}/cmd", f"stoker/1/d/{ME}/desired"


class Cut(BaseException):
    """The power goes."""


class CutStore(SqliteFleetStore):
    """Dies at the Nth write, before or after it; or fails as a full disk does."""

    cut_at = 0
    after = False
    full = False
    writes = 0

    def _cut(self, write: Callable[[], None]) -> None:
        if self.full:
            raise StorageFailed("cannot write fleet records: the disk is full")
        self.writes += 1
        if self.writes == self.cut_at and not self.after:
            raise Cut
        write()
        if self.writes == self.cut_at:
            raise Cut

    def add(
        self, record: Record, letters: Sequence[Letter], wish: tuple[str, str] | None = None
    ) -> None:
        self._cut(lambda: SqliteFleetStore.add(self, record, letters, wish))

    def move(self, record: Record, letters: Sequence[Letter] = ()) -> None:
        self._cut(lambda: SqliteFleetStore.move(self, record, letters))


class Judge:
    """Believes messages that say what they are: ``id command sequence``."""

    def __init__(self) -> None:
        self.at_s, self.trusted = 1000.0, True
        self.kept: Kept | None = None
        self.untrusting: ConfigInvalid | None = None

    def now(self) -> Moment:
        return Moment(self.at_s, self.trusted)

    def remember(self, proven_s: float) -> None:
        """Time is given here."""

    def command(self, data: bytes) -> tuple[Record, str, Callable[[Addressee], bool]]:
        if not data.startswith(b"good"):
            raise BadSignature("cannot accept it: nobody has signed it")
        _, identity, word, sequence = data.decode().split()
        record = Record(identity, word, {}, "ops", int(sequence), 900.0, 2000.0)
        refusal = "expired" if self.at_s > 2000.0 else ""
        return record, refusal, lambda me: me.device == ME and word != "for-others"

    def desired(self, data: bytes) -> Kept:
        if self.kept is None or data != b"state":
            raise BadSignature("cannot accept it")
        return self.kept

    def trust_version(self) -> int:
        if self.untrusting is not None:
            raise self.untrusting
        return 1


class Deeds:
    """An effect that can be repeated harmlessly only if it looks first, as ours do."""

    def __init__(self) -> None:
        self.effects: list[str] = []
        self.begun: list[tuple[str, int]] = []
        self.held: set[str] = set()  # commands that go on until they are let go
        self.stoppable = True
        self.adopting = False  # what was begun goes on over restarts
        self.cancel: Callable[[str], None] = lambda _identity: None

    def begin(self, record: Record, note: Callable[[Mapping[str, object]], None]) -> Deed:
        self.begun.append((record.id, record.attempts))
        if record.command == "nonsense":
            raise InvalidRequest("cannot do it")
        if record.command == "broken":
            raise RuntimeError("a fault of ours")
        if record.command == "cancel":
            self.cancel("2")
        if self.adopting and record.attempts > 1:
            note({ADOPTED: record.id})
        if not record.notes:
            note({"before": len(self.effects)})
        if record.id not in self.effects:
            self.effects.append(record.id)
        return Running(self, record)


@dataclass
class Running:
    deeds: Deeds
    record: Record
    stopped: bool = False

    def poll(self) -> Outcome | None:
        if self.stopped:
            return Outcome("canceled", "cancelled")
        if self.record.command in self.deeds.held:
            return None
        return Outcome("done", data={"by": self.record.id})

    def cancel(self) -> bool:
        self.stopped = self.deeds.stoppable
        return self.stopped


@dataclass
class Rig:
    folder: Path
    judge: Judge = field(default_factory=Judge)
    deeds: Deeds = field(default_factory=Deeds)
    twin: MemoryStateFile = field(default_factory=MemoryStateFile)
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.store = CutStore(self.folder / "fleet.db", self.twin, passed_s=lambda: 1000.0)
        self.store.open()
        self.desk = FleetDesk(
            Desk(
                self.store, self.judge, self.deeds, Topics(),
                me=lambda: Addressee(ME), wall_s=lambda: 1000.0, monotonic_s=lambda: self.now_s,
                posted=lambda: None, groups_changed=lambda: None,
            )
        )  # fmt: skip
        self.deeds.cancel = self.desk.cancel
        self.desk.begin()

    def reboot(self) -> None:
        self.store.close()
        self.start()

    def hear(self, payload: bytes, topic: str = CMD, *, retained: bool = False) -> None:
        self.desk.receive(Message(1, topic, payload, retained=retained, token=1))

    def turns(self, count: int = 5) -> None:
        for _ in range(count):
            self.desk.turn()

    def results(self) -> list[str]:
        """States in the outbox, in their order."""
        return [item["state"] for item in self.told()]

    def told(self) -> list[dict[str, str]]:
        return [json.loads(self.store.payload(item.number)) for item in self.store.waiting()]


def good(identity: str = "a", word: str = "work", sequence: int = 1) -> bytes:
    return f"good {identity} {word} {sequence}".encode()
