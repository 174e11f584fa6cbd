"""What leaves for the broker when: values of each connect, refusals tried again, a full disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.services.test_fleet_link import STATUS, Rig

from stoker.core.fleet_outbox import Caps
from stoker.errors import StorageFailed
from stoker.events.fleet import TELEMETRY, Lost


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path, Caps(10_000, 1e9))


def test_values_told_on_each_connect_count_as_on_their_way(rig: Rig) -> None:
    rig.link.retain("t/state", b"x")
    rig.link.retain("ha/config", b"y")
    rig.post(3)
    rig.online(answered=False, receive_maximum=1)
    for count in range(1, 7):  # the birth first, then values, then what waits
        assert len(rig.broker.sent) == count
        rig.take(count)
    topics = [topic for _, topic, *_ in rig.broker.sent]
    assert topics[:3] == [STATUS, "t/state", "ha/config"]
    assert rig.store.waiting() == ()


def test_the_newest_value_is_told_when_there_is_room(rig: Rig) -> None:
    rig.online(receive_maximum=1)
    rig.link.retain("t/state", b"1")
    rig.link.retain("t/state", b"2")
    rig.link.retain("t/state", b"3")
    assert [p for _, topic, p, *_ in rig.broker.sent if topic == "t/state"] == [b"1"]
    rig.take(len(rig.broker.sent))
    assert rig.broker.sent[-1][2] == b"3"


def test_too_large_a_value_is_not_told_and_said_to_be(rig: Rig) -> None:
    rig.link.retain("t/state", b"x" * 5000)
    rig.online(maximum_packet=2000)
    assert [topic for _, topic, *_ in rig.broker.sent] == [STATUS]
    assert any("larger than the broker takes" in text for text in rig.snapshot().warnings)


def test_a_value_that_seems_to_cut_us_off_lets_the_others_pass(rig: Rig) -> None:
    rig.link.retain("t/state", b"poison")
    rig.post(1)
    for _ in range(2):
        rig.online(answered=False)
        rig.take(next(t for t, topic, *_ in reversed(rig.broker.sent) if topic == STATUS))
        rig.link.lost(Lost(len(rig.broker.logins), "closed"))
    before = len(rig.broker.sent)
    rig.online()
    assert [topic for _, topic, *_ in rig.broker.sent[before:]] == [STATUS, "t/result"]
    rig.take(rig.parcels()[-1])
    assert rig.broker.sent[-1][2] == b"poison"  # last, and alone


def test_a_quota_that_is_used_up_is_waited_for(rig: Rig) -> None:
    rig.post(2)
    rig.online(receive_maximum=1)
    rig.take(rig.parcels()[0], "Quota exceeded")
    assert len(rig.parcels()) == 1  # nothing else either: it would be refused, too
    rig.now_s += 3.0
    rig.link.turn()
    assert len(rig.parcels()) == 1
    assert rig.link.wake_s() < 10.0
    rig.now_s += 10.0
    rig.link.turn()
    for _ in range(3):  # the birth is told again meanwhile
        rig.take(len(rig.broker.sent))
    assert rig.store.waiting() == ()
    assert rig.snapshot().denied == ()


def test_a_right_that_is_given_later_is_noticed_without_another_connection(rig: Rig) -> None:
    rig.link.retain("t/state", b"x")
    rig.post(1)
    rig.online(answered=False)
    for token, topic, *_ in list(rig.broker.sent):
        rig.take(token, "" if topic == STATUS else "Not authorized")
    before = len(rig.broker.sent)
    rig.now_s += 400.0
    rig.link.turn()
    again = rig.broker.sent[before:]
    assert {topic for _, topic, *_ in again if topic != STATUS} == {"t/state", "t/result"}
    for token, *_ in again:
        rig.take(token)
    assert rig.snapshot().denied == ()
    assert rig.store.waiting() == ()


def test_a_full_disk_keeps_nobody_from_connecting_to_say_so(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.post(1)
    rig.online()

    def full(*_: object) -> None:
        raise StorageFailed("cannot write fleet records: database or disk is full")

    with monkeypatch.context() as patch:
        for name in ("next_session", "take_out", "put"):
            patch.setattr(rig.store, name, full)
        rig.take(rig.parcels()[0])
        rig.post(1, TELEMETRY)  # cannot be kept
        rig.link.lost(Lost(1, "network"))
        rig.online()
        assert rig.link.online
        assert len(rig.parcels()) == 1  # what was taken is not sent again
        assert "disk is full" in rig.link.storage
        assert any("nothing can be kept" in text for text in rig.snapshot().warnings)
        sessions = [json.loads(login.will[1])["session"] for login in rig.broker.logins]
        assert sessions == [1, 2]
    rig.link.lost(Lost(2, "network"))
    rig.online()
    assert rig.link.storage == ""
    assert json.loads(rig.broker.logins[-1].will[1])["session"] == 3
