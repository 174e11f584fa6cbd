"""The link to the broker on a broker that is played: what is sent when, and what is given up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.fakes.system import MemoryStateFile

from stoker.core.fleet_outbox import Caps
from stoker.core.fleet_session import Pace
from stoker.drivers.fleet_store import SqliteFleetStore
from stoker.events.fleet import (
    RESULT,
    TELEMETRY,
    Connected,
    FleetSnapshot,
    Login,
    Lost,
    Message,
    ProbeStep,
    Published,
    Subscribed,
)
from stoker.ports.fleet import Letter
from stoker.services.fleet_link import FleetLink, Parts
from stoker.services.fleet_sending import WINDOW

STATUS = "stoker/1/d/dev-1/status"


class PlayedBroker:
    """Port ``Broker``: notes what it is told, answers when the test says so."""

    def __init__(self) -> None:
        self.logins: list[Login] = []
        self.sent: list[tuple[int, str, bytes, int, bool]] = []
        self.subscribed: list[tuple[str, ...]] = []
        self.gone: list[tuple[str, ...]] = []
        self.drops = 0
        self.farewell: tuple[str, bytes] | None = None

    def connect(self, login: Login, connection: int) -> None:
        assert connection == len(self.logins) + 1
        self.logins.append(login)

    def publish(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> int:
        self.sent.append((len(self.sent) + 1, topic, payload, qos, retain))
        return len(self.sent)

    def subscribe(self, topics: Sequence[str]) -> int:
        self.subscribed.append(tuple(topics))
        return 1

    def unsubscribe(self, topics: Sequence[str]) -> None:
        self.gone.append(tuple(topics))

    def acknowledge(self, message: Message) -> None: ...

    def drop(self) -> None:
        self.drops += 1

    def disconnect(self, farewell: tuple[str, bytes] | None, timeout_s: float) -> None:
        self.farewell = farewell

    def certificate_expires(self) -> float:
        return 0.0

    def enroll(self, device: str) -> str:
        return device

    def adopt(self, device: str, pem: bytes) -> None: ...

    def test(
        self, device: str, topics: Sequence[str], writes: Sequence[str]
    ) -> Sequence[ProbeStep]:
        return ()


class Rig:
    def __init__(self, folder: Path, caps: Caps) -> None:
        self.now_s, self.draw = 100.0, 0.5
        self.broker = PlayedBroker()
        self.store = SqliteFleetStore(
            folder / "fleet.db", MemoryStateFile(), passed_s=lambda: self.now_s
        )
        self.store.open()
        parts = Parts(
            self.broker, self.store, lambda: self.now_s, lambda: self.draw, caps,
            wall_s=lambda: self.now_s, pace=Pace(), clock_word=lambda: "ok",
        )  # fmt: skip
        self.link = FleetLink(parts, "dev-1", STATUS)

    def online(self, *, answered: bool = True, **facts: int) -> None:
        """``answered``: the broker takes what is told on each connect."""
        self.now_s += 1000.0
        self.link.turn()
        before = len(self.broker.sent)
        self.link.connected(Connected(len(self.broker.logins), **facts))  # type: ignore[arg-type]
        for token, *_ in self.broker.sent[before:] if answered else ():
            self.link.published(Published(len(self.broker.logins), token))
        self.link.turn()

    def post(self, count: int, kind: str = RESULT, size: int = 100) -> None:
        self.link.post([Letter(kind, f"t/{kind}", bytes([n]) * size) for n in range(count)])

    def parcels(self) -> list[int]:
        """Tokens of outbox messages on their way, in order."""
        return [token for token, topic, *_ in self.broker.sent if topic.startswith("t/")]

    def take(self, token: int, refused: str = "") -> None:
        self.link.published(Published(len(self.broker.logins), token, refused))
        self.link.turn()

    def snapshot(self) -> FleetSnapshot:
        return self.link.snapshot(FleetSnapshot())


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path, Caps(10_000, 1e9))


def test_birth_and_will_carry_a_session_number_that_rises(rig: Rig) -> None:
    rig.online()
    rig.link.lost(Lost(1, "network"))
    rig.online()
    wills = [json.loads(login.will[1]) for login in rig.broker.logins]
    births = [json.loads(p) for _, topic, p, _, _ in rig.broker.sent if topic == STATUS]
    assert [will["session"] for will in wills] == [1, 2]
    assert [birth["session"] for birth in births] == [1, 2]
    assert [will["online"] for will in wills] == [False, False]
    rig.now_s += 6.0
    rig.link.turn()  # told once more: a late will may have come after it
    assert sum(topic == STATUS for _, topic, *_ in rig.broker.sent) == 3


def test_no_more_are_on_their_way_than_the_broker_takes(rig: Rig) -> None:
    rig.post(20)
    rig.online(receive_maximum=3)
    assert len(rig.parcels()) == 3
    rig.take(rig.parcels()[0])
    assert len(rig.parcels()) == 4
    rig.link.lost(Lost(1, "network"))
    rig.online()
    assert len(rig.parcels()) == 4 + WINDOW


def test_what_was_not_answered_is_sent_again_and_nothing_is_lost(rig: Rig) -> None:
    rig.post(2)
    rig.online()
    rig.take(rig.parcels()[0])
    rig.link.lost(Lost(1, "network"))
    rig.online()
    for token in rig.parcels()[2:]:
        rig.take(token)
    assert rig.store.waiting() == ()
    assert rig.snapshot().outbox == 0


def test_too_large_a_message_is_given_up_instead_of_being_cut_off_for_it(rig: Rig) -> None:
    rig.post(1, size=5000)
    rig.post(1, size=10)
    rig.online(maximum_packet=2000)
    assert len(rig.parcels()) == 1
    assert rig.snapshot().dropped == 1


def test_a_denied_result_stays_and_denied_telemetry_goes(rig: Rig) -> None:
    rig.post(1)
    rig.post(1, TELEMETRY)
    rig.online()
    for token in rig.parcels():
        rig.take(token, "Not authorized")
    found = rig.snapshot()
    assert found.denied == ("t/result", "t/telemetry")
    assert found.outbox == 1
    assert len(rig.parcels()) == 2  # not again on this connection
    rig.link.lost(Lost(1, "network"))
    rig.online()
    assert len(rig.parcels()) == 3


def test_a_message_that_seems_to_cut_us_off_lets_the_others_pass(rig: Rig) -> None:
    rig.post(3)
    for _ in range(2):
        rig.online(receive_maximum=1)
        rig.link.lost(Lost(len(rig.broker.logins), "closed"))
    rig.online(receive_maximum=3)
    assert rig.broker.sent[-1][2] == bytes([2]) * 100
    assert any("end the connection" in text for text in rig.snapshot().warnings)
    for token in rig.parcels()[-2:]:
        rig.take(token)
    assert rig.broker.sent[-1][2] == bytes([0]) * 100  # it goes last, and alone


def test_a_full_outbox_gives_up_telemetry_first(tmp_path: Path) -> None:
    rig = Rig(tmp_path, Caps(1000, 1e9))
    rig.post(8, TELEMETRY)
    rig.post(8)
    rig.link.turn()
    kinds = [item.kind for item in rig.store.waiting()]
    assert kinds.count(RESULT) == 8
    assert kinds.count(TELEMETRY) == 2
    assert rig.snapshot().dropped == 6


def test_old_news_of_another_connection_is_not_heard(rig: Rig) -> None:
    rig.online()
    rig.link.lost(Lost(7, "network"))
    rig.link.subscribed(Subscribed(7, 1, {"x": "no"}))
    rig.link.published(Published(7, 1))
    assert rig.link.online
    assert rig.snapshot().denied == ()


def test_a_broker_that_never_answers_is_hung_up_on(rig: Rig) -> None:
    rig.now_s += 1000.0
    rig.link.turn()
    assert rig.snapshot().state == "connecting"
    rig.now_s += 31.0
    rig.link.turn()
    assert rig.broker.drops == 1
    assert rig.snapshot().problem_code == "silent"
    rig.link.turn()  # perhaps it knows 3.1.1 only
    assert [login.protocol for login in rig.broker.logins] == [5, 4]


def test_subscriptions_follow_the_groups(rig: Rig) -> None:
    rig.link.watch(["a", "b"])
    rig.online()
    rig.link.watch(["a", "c"])
    assert rig.broker.subscribed == [("a", "b"), ("c",)]
    assert rig.broker.gone == [("b",)]


def test_the_last_word_says_why(rig: Rig) -> None:
    rig.online()
    rig.link.stop("stop")
    assert rig.broker.farewell is not None
    topic, payload = rig.broker.farewell
    assert topic == STATUS
    assert json.loads(payload)["why"] == "stop"
