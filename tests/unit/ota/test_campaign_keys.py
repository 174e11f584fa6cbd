"""A campaign when the fleet's key has changed, when it cannot be begun or is taken over, and when
somebody has been at its ledger.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from tests.unit.ota.campaign_world import PLAN, TOPICS, Pen, World, all_reached, joined

from stoker_ota.cli.fleet_keys import Keys
from stoker_ota.core import campaign
from stoker_ota.core.campaign import State
from stoker_ota.drivers.campaign_ledger import SqliteLedger
from stoker_ota.errors import BadDocument, InvalidRequest, StorageFailed

POLICY: dict[str, dict[str, object]] = {"policy": {"a": 1}}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with closing(SqliteLedger(tmp_path / "campaigns.db")) as ledger:
        yield World(ledger)


def begun(world: World, **sections: dict[str, object]) -> State:
    if sections:
        world.put("blue", 3, sections)
    made = world.run()
    made.begin()
    return made.state


@pytest.mark.parametrize("order", ["pause", "abort"])
def test_what_an_old_key_began_goes_on_under_the_new_one(world: World, order: str) -> None:
    state = begun(world)
    world.pen = Pen(b"renewed")
    made = world.run(PLAN, state)
    made.settle()
    assert [world.document(group).version for group in PLAN.groups] == [2, 2]
    made.order(order)
    assert {world.section(group)[1].phase for group in PLAN.groups} == {made.state.phase}
    sent = world.sent
    again = world.run(PLAN, made.state)
    again.settle()
    assert world.sent == sent


def test_a_broker_that_keeps_giving_the_old_one_gets_no_flood(world: World) -> None:
    state = begun(world)
    old = dict(world.kept)
    world.pen = Pen(b"renewed")
    made = world.run(PLAN, state)
    made.settle()
    sent = world.sent
    for topic, payload in old.items():
        made.hear(topic, payload)
        made.settle()
    assert world.sent == sent


def test_other_words_under_an_old_key_are_not_signed_unseen(world: World) -> None:
    state = begun(world, **POLICY)
    world.pen = Pen(b"renewed")
    made = world.run(PLAN, state)
    sent = world.sent
    with pytest.raises(BadDocument, match=r'cannot sign g:blue anew: .*"policy": {"a": 1}'):
        made.settle()
    assert world.sent == sent
    world.put("blue", 9, POLICY)  # the operator has looked at it
    after = world.run(PLAN, state)
    with pytest.raises(InvalidRequest, match="follows something else"):
        after.turn()
    after.order("abort")
    fresh = world.run(campaign.Plan("c-2", ("blue", "green"), "chat", 7))
    fresh.begin()
    assert world.document("blue").sections["policy"] == {"a": 1}


def test_a_start_that_cannot_be_signed_is_not_on_record(world: World) -> None:
    world.kept[TOPICS.group("green", "desired")] = b"forged{}"
    with pytest.raises(BadDocument):
        world.run().begin()
    assert world.sent == 0
    assert world.ledger.campaigns() == []
    assert world.ledger.story("c-1") == []


def test_an_abort_closes_a_campaign_and_leaves_those_alone_that_follow_something_else(
    world: World,
) -> None:
    begun(world)
    world.now += timedelta(seconds=5)
    world.put("blue", 9, POLICY)
    world.now += timedelta(seconds=5)
    made = world.run()
    made.order("abort")
    assert world.document("blue").version == 9
    assert world.section("green")[1].phase == campaign.ABORTED
    later = world.run(*world.ledger.campaigns()[0])
    later.settle()
    assert later.state.over
    assert world.document("blue").version == 9


@pytest.mark.parametrize(
    "change",
    ["UPDATE campaign SET section = 'x'", "UPDATE campaign SET section = x'ff00'",
     "UPDATE campaign SET section = '[]'", "UPDATE campaign SET phase = 'strange'",
     "UPDATE campaign SET since_s = 'abc'", "UPDATE document SET data = 'text'",
     "UPDATE device SET groups = 'x'", "UPDATE device SET groups = '5'",
     "UPDATE device SET session = 'abc'", "UPDATE story SET at_s = 'abc'", "DROP TABLE story",
     "PRAGMA user_version = 9"],
)  # fmt: skip
def test_a_ledger_that_somebody_has_changed_is_a_typed_error_and_stays(
    world: World, tmp_path: Path, change: str
) -> None:
    made = world.run()
    made.begin()
    joined(made)
    all_reached(made)
    made.turn()
    path = tmp_path / "campaigns.db"
    with closing(sqlite3.connect(path)) as con:
        con.execute(change)
        con.commit()

    def read() -> None:
        with closing(SqliteLedger(path)) as ledger:
            for plan, _ in ledger.campaigns():
                ledger.devices(plan.id)
                ledger.story(plan.id)
                ledger.document("g:blue")

    if change.startswith("DROP"):
        read()  # made again, empty
    else:
        with pytest.raises(StorageFailed, match=re.escape(str(path))):
            read()
    assert path.exists()
    assert not list(tmp_path.glob("*.damaged"))


def test_a_copy_of_the_ledger_that_is_no_document_says_what_to_do() -> None:
    keys = Keys(None)  # type: ignore[arg-type]  # recalling needs no keys
    for data in (b"x", b"{}", b"[" * 100):
        with pytest.raises(BadDocument) as found:
            keys.recall(data)
        assert "campaigns.db" in str(found.value.hint)
