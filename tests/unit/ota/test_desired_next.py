"""Which version an operator's next desired state gets, whatever broker and devices say."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.fakes.fleet_operator import FleetOperator
from tests.fakes.pki import World

from stoker_ota.cli import desired, fleet
from stoker_ota.cli.desired import Order
from stoker_ota.cli.fleet_keys import Keys
from stoker_ota.core import fleet_documents, fleet_gate, fleet_versions
from stoker_ota.core.clock import EARLIEST, Now
from stoker_ota.core.fleet_documents import Desired
from stoker_ota.core.topics import Topics
from stoker_ota.drivers.campaign_ledger import SqliteLedger
from stoker_ota.drivers.mqtt_operator import Heard
from stoker_ota.errors import InvalidRequest

NOW = datetime.now(UTC).replace(microsecond=0)
ME = "d:dev-1"
OPERATOR = FleetOperator(World())


class Pen:
    def sign(self, made: Desired) -> bytes:
        return OPERATOR.desired(made.audience, {}, version=made.version)

    def read(self, data: bytes) -> Desired:
        return fleet_gate.open_desired(data, OPERATOR.world.trust(), Now(EARLIEST, trusted=False))

    recall = Keys.recall


@dataclass
class Line:
    """A broker with what it retains."""

    retained: bytes = b""
    states: Sequence[bytes] = ()
    published: list[bytes] = field(default_factory=list)
    _coming: list[Heard] = field(default_factory=list)

    def kept(self, _topic: str, timeout_s: float = 2.0) -> bytes:
        assert timeout_s > 0
        return self.retained

    def subscribe(self, filters: Sequence[str]) -> None:
        assert list(filters) == ["stoker/1/d/dev-1/state"]
        self._coming = [Heard(filters[0], state, retained=True) for state in self.states]

    def hear(self, _timeout_s: float) -> Heard | None:
        return self._coming.pop(0) if self._coming else None

    def publish(self, _topic: str, payload: bytes, *, retain: bool) -> None:
        assert retain
        self.published.append(payload)


def has(version: object) -> bytes:
    return json.dumps({"desired": {ME: version}}).encode()


def published(folder: Path, line: Line, version: int = 0) -> tuple[int, tuple[str, ...]]:
    table: dict[str, object] = {"audience": ME}
    if version:
        table["version"] = version
    ledger = SqliteLedger(folder / "campaigns.db")
    try:
        made, found = desired.publish(Order(table, Topics(), NOW, 90), Pen(), ledger, line)
        assert Pen().read(line.published[-1]) == Pen().read(ledger.document(ME))
    finally:
        ledger.close()
    return made.version, found.remarks


def forged(version: int) -> bytes:
    payload = fleet_documents.desired_payload(Desired(ME, version, NOW, NOW + timedelta(days=1)))
    envelope = {
        "payloadType": fleet_documents.DESIRED_TYPE,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"sig": base64.b64encode(b"x" * 64).decode(), "keyid": "a" * 64}],
    }
    return json.dumps(envelope).encode()


def test_it_counts_on_from_what_the_fleet_has_signed(tmp_path: Path) -> None:
    assert published(tmp_path, Line(OPERATOR.desired(ME, {}, version=41))) == (42, ())


@pytest.mark.parametrize(
    "bad", [forged((1 << 53) - 2), forged((1 << 53) - 1), b"junk", b'{"a":1}',
            FleetOperator(World()).desired(ME, {}, version=(1 << 53) - 2),
            OPERATOR.desired("d:dev-2", {}, version=900)],
)  # fmt: skip
def test_a_forged_document_at_the_broker_uses_up_no_version(tmp_path: Path, bad: bytes) -> None:
    version, remarks = published(tmp_path, Line(bad))
    assert version == 1
    assert "not this fleet's" in remarks[0]
    assert published(tmp_path, Line(bad), version=5)[0] == 5


def test_a_broker_that_lost_its_store_does_not_set_us_back(tmp_path: Path) -> None:
    assert published(tmp_path, Line(OPERATOR.desired(ME, {}, version=41)))[0] == 42
    assert published(tmp_path, Line())[0] == 43  # this folder remembers
    assert published(tmp_path / "other", Line(states=[has(118)]))[0] == 119  # devices remember


def test_a_device_that_lies_moves_the_version_only_so_far(tmp_path: Path) -> None:
    line = Line(
        OPERATOR.desired(ME, {}, version=41), [has((1 << 53) - 2), has("9"), b"junk", b"[]"]
    )
    version, remarks = published(tmp_path, line)
    assert version == 42
    assert "not believed" in remarks[-1]
    assert fleet_versions.newest(5, [5 + fleet_versions.MOST_AHEAD]) == 1005


def test_nothing_is_signed_when_devices_have_more_than_anybody_can_know(tmp_path: Path) -> None:
    line = Line(states=[has(200_000)])
    with pytest.raises(InvalidRequest, match="cannot tell the next version"):
        published(tmp_path, line)
    assert not line.published
    assert published(tmp_path, line, version=200_001)[0] == 200_001


@pytest.mark.parametrize(
    "payload", [b'{"id":"i","number":"x"}', b'{"id":"i","number":[]}', b'{"id":"i"}', b"[]",
                b'{"id":"i","number":1,"state":[1]}', b'{"id":"i","number":1,"detail":{}}',
                b'{"id":["i"],"number":1}', b"[" * 5000, b"\xff"],
)  # fmt: skip
def test_a_hostile_result_is_no_news(payload: bytes) -> None:
    watch = fleet.Watch(Topics(), "i")
    good = b'{"id":"i","number":1,"state":"running"}'
    assert watch.hear("stoker/1/d/a/result", good)
    assert not watch.hear("stoker/1/d/a/result", payload)
    assert not watch.hear("stoker/1/d/b/result", payload)
    assert not watch.over


@pytest.mark.parametrize("text", ["", "x", "-5", "9007199254740991", "1" * 40])
def test_a_damaged_sequence_file_stops_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / "fleet-sequence").write_text(text)
    first = fleet.next_sequence(tmp_path)
    assert 1_700_000_000 < first < 1 << 40
    assert fleet.next_sequence(tmp_path) > first


def test_a_fleet_that_signs_with_another_key_counts_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert published(tmp_path, Line(), version=41)[0] == 41
    monkeypatch.setattr(__name__ + ".OPERATOR", FleetOperator(World()))
    assert published(tmp_path, Line())[0] == 42
