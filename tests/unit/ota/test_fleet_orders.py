"""What an operator's words become, and what is refused before it is signed."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker_ota.core import fleet_documents, fleet_orders
from stoker_ota.core.fleet_documents import Desired, Target
from stoker_ota.core.topics import Topics
from stoker_ota.errors import InvalidRequest

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@given(st.integers(0, (1 << 48) - 1), st.integers(0, (1 << 80) - 1))
def test_ids_are_uuids_of_version_7_in_the_order_of_time(milliseconds: int, random: int) -> None:
    text = fleet_orders.uuid7(milliseconds, random)
    found = uuid.UUID(text)
    assert (found.version, found.variant) == (7, uuid.RFC_4122)
    assert fleet_documents.ID.fullmatch(text)
    assert int(found) >> 80 == milliseconds


def test_a_command_goes_to_exactly_one_kind_of_receiver() -> None:
    assert fleet_orders.target("dev-1", "", ()) == Target(device="dev-1")
    assert fleet_orders.target("", "", ("a=1", "b=x=y")) == Target(labels={"a": "1", "b": "x=y"})
    for device, group, labels in (
        ("", "", ()), ("a", "b", ()), ("a", "", ("c=1",)), ("a.b", "", ()), ("", "x/y", ()),
        ("", "", ("novalue",)), ("", "", ("=1",)),
    ):  # fmt: skip
        with pytest.raises(InvalidRequest):
            fleet_orders.target(device, group, labels)


def test_arguments_are_json_or_words() -> None:
    said = fleet_orders.command(
        "policy.set", Target(device="d"), ("a=1", "b=word", 'c={"d": [true]}', "e=null"),
        identity=fleet_orders.uuid7(1, 2), sequence=3, now=NOW, life_s=60,
    )  # fmt: skip
    assert said.args == {"a": 1, "b": "word", "c": {"d": [True]}, "e": None}
    payload = fleet_documents.command_payload(said)
    assert fleet_documents.parse_command(payload) == said
    for life_s in (0, -1, 8 * 86_400):
        with pytest.raises(InvalidRequest):
            fleet_orders.command(
                "cancel", Target(device="d"), (), identity="x", sequence=1, now=NOW, life_s=life_s
            )


def test_the_next_state_counts_on_and_never_back() -> None:
    table: dict[str, object] = {"audience": "g:blue", "update": {"deployment": "chat"}}
    first = fleet_orders.desired(table, None, NOW, 90)
    assert (first.version, first.expires) == (1, NOW + timedelta(days=90))
    second = fleet_orders.desired(table, first, NOW, 90)
    assert second.version == 2
    assert fleet_documents.parse_desired(fleet_documents.desired_payload(second)) == second
    with pytest.raises(InvalidRequest, match="cannot go back"):
        fleet_orders.desired({**table, "version": 2}, second, NOW, 90)
    assert fleet_orders.desired({**table, "version": 9}, second, NOW, 90).version == 9


@pytest.mark.parametrize(
    "table",
    [{"audience": "g:red"}, {"audience": "g:blue", "updates": {}},
     {"audience": "g:blue", "update": 1}, {"audience": "g:blue", "groups": "red"},
     {"audience": "g:blue", "version": "2"}],
)  # fmt: skip
def test_a_state_that_makes_no_sense_is_refused(table: dict[str, object]) -> None:
    before = Desired("g:blue", 1, NOW, NOW + timedelta(days=1))
    with pytest.raises(InvalidRequest):
        fleet_orders.desired(table, before, NOW, 90)


def test_each_audience_has_its_place() -> None:
    topics = Topics()
    assert fleet_orders.place(topics, "d:x") == "stoker/1/d/x/desired"
    assert fleet_orders.place(topics, "g:x") == "stoker/1/g/x/desired"
    for audience in ("", "x", "e:x", "d:", "d:a.b"):
        with pytest.raises(InvalidRequest):
            fleet_orders.place(topics, audience)


def test_no_rule_lets_a_device_write_where_the_fleet_speaks() -> None:
    rows = fleet_orders.mosquitto_rights("stoker/1").split("\n")
    written = {row.split()[-1] for row in rows if " write " in row}
    assert all("/%u/" in topic for topic in written)
    assert not {topic for topic in written if topic.endswith(("cmd", "desired"))}
    assert "publish" in fleet_orders.emqx_rights("stoker/1")
