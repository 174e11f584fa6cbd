"""A campaign's broker, pen and devices, for unit tests."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from stoker_ota.core import campaign_count, campaign_section, campaign_share
from stoker_ota.core.campaign import Plan, State
from stoker_ota.core.fleet_documents import Desired, desired_payload, parse_desired
from stoker_ota.core.topics import Topics
from stoker_ota.drivers.campaign_ledger import SqliteLedger
from stoker_ota.errors import BadSignature, Unavailable
from stoker_ota.services.campaign_run import CampaignRun, Parts

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
PLAN = Plan("c-1", ("blue", "green"), "chat", 7, (50.0, 100.0), soak_s=10)
TOPICS = Topics()


@dataclass(frozen=True)
class Pen:
    """``key``: the one that counts."""

    key: bytes = b"signed"

    def sign(self, desired: Desired) -> bytes:
        return self.key + desired_payload(desired)

    def read(self, data: bytes) -> Desired:
        if not data.startswith(self.key):
            raise BadSignature("cannot accept it: nobody we know has signed it")
        return self.recall(data)

    def recall(self, data: bytes) -> Desired:
        return parse_desired(data[data.index(b"{") :])


@dataclass
class World:
    ledger: SqliteLedger
    kept: dict[str, bytes] = field(default_factory=dict)  # by the broker
    sent: int = 0
    fails_after: int = 99
    now: datetime = NOW
    pen: Pen = field(default_factory=Pen)

    def publish(self, topic: str, payload: bytes, *, retain: bool) -> None:
        assert retain
        if self.sent >= self.fails_after:
            raise Unavailable("cannot publish: the broker is away")
        self.sent += 1
        self.kept[topic] = payload

    def run(self, plan: Plan = PLAN, state: State | None = None) -> CampaignRun:
        parts = Parts(self, self.pen, self.ledger, TOPICS, lambda: self.now)
        made = CampaignRun(plan, state or State(), parts)
        self.tell(made)
        return made

    def tell(self, made: CampaignRun) -> None:
        for topic, payload in list(self.kept.items()):
            made.hear(topic, payload)

    def document(self, group: str) -> Desired:
        return self.pen.read(self.kept[TOPICS.group(group, "desired")])

    def put(self, group: str, version: int, sections: dict[str, dict[str, object]]) -> None:
        """By another hand."""
        made = Desired(f"g:{group}", version, self.now, self.now + timedelta(days=1), sections)
        self.kept[TOPICS.group(group, "desired")] = self.pen.sign(made)

    def section(self, group: str) -> tuple[Plan, State]:
        found = campaign_section.parse(self.document(group).sections["campaign"])
        assert found is not None
        return found


def joined(made: CampaignRun, count: int = 40, **more: object) -> list[str]:
    """Devices of blue that say so."""
    names = [f"dev-{number}" for number in range(count)]
    for name in names:
        state = {"groups": ["blue"], "desired": {}, "results": [], **more}
        made.hear(TOPICS.device(name, "state"), json.dumps(state).encode())
    return names


def ended(made: CampaignRun, name: str, state: str = "succeeded", number: int = 3) -> None:
    digest = campaign_share.wish(PLAN.update)
    result = {"id": f"desired-1-{digest}", "state": state, "number": number, "code": ""}
    made.hear(TOPICS.device(name, "result"), json.dumps(result).encode())


def all_reached(made: CampaignRun) -> None:
    for name, (standing, _) in made.standings().items():
        if standing != campaign_count.OUTSIDE:
            ended(made, name)
