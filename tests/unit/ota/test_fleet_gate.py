"""Which commands and desired states a device believes, and the strict form they must have."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.fleet_operator import FleetOperator
from tests.fakes.pki import START, seal

from stoker_ota.core import fleet_documents, fleet_gate
from stoker_ota.core.clock import Now
from stoker_ota.core.fleet_documents import Command, Desired, Target
from stoker_ota.core.topics import Topics
from stoker_ota.errors import BadDocument, BadSignature, Expired, InvalidRequest, OtaError

OPERATOR = FleetOperator()
TRUST = OPERATOR.world.trust()
ISSUED = START + timedelta(days=100)
NOW = Now(ISSUED + timedelta(minutes=1), trusted=True)


def command(**changes: Any) -> Command:
    return OPERATOR.value("dev-1", "report.state", {"a": 1}, issued=ISSUED, **changes)


def test_a_signed_command_is_read_as_it_was_made() -> None:
    value = command()
    found = fleet_gate.open_command(OPERATOR.signed(value), TRUST, NOW)
    assert found.command == value
    assert found.issuer == OPERATOR.world.parties["fleet"].spki
    assert found.refusal == ""


def test_other_roles_and_other_documents_are_refused() -> None:
    value, parties = command(), OPERATOR.world.parties
    with pytest.raises(OtaError):
        fleet_gate.open_command(OPERATOR.signed(value, parties["release"]), TRUST, NOW)
    payload = fleet_documents.command_payload(value)
    other = seal(fleet_documents.DESIRED_TYPE, payload, parties["fleet"])
    with pytest.raises(BadDocument):
        fleet_gate.open_command(other, TRUST, NOW)
    with pytest.raises(BadDocument):
        fleet_gate.open_desired(OPERATOR.signed(value), TRUST, NOW)


def test_nobody_speaks_where_trust_names_no_fleet() -> None:
    roles = {name: role for name, role in TRUST.roles.items() if name != "fleet"}
    trust = OPERATOR.world.trust(roles=roles)
    with pytest.raises(BadSignature):
        fleet_gate.open_command(OPERATOR.signed(command()), trust, NOW)


def test_expired_and_future_commands_are_told_apart_from_forged_ones() -> None:
    late = Now(ISSUED + timedelta(days=1), trusted=True)
    early = Now(ISSUED - timedelta(hours=1), trusted=True)
    data = OPERATOR.signed(command())
    assert fleet_gate.open_command(data, TRUST, late).refusal == "expired"
    assert fleet_gate.open_command(data, TRUST, early).refusal == "not-yet"


def test_a_clock_that_nobody_keeps_refuses_no_future() -> None:
    early = Now(START, trusted=False)
    assert fleet_gate.open_command(OPERATOR.signed(command()), TRUST, early).refusal == ""
    late = Now(ISSUED + timedelta(days=1), trusted=False)
    assert fleet_gate.open_command(OPERATOR.signed(command()), TRUST, late).refusal == "expired"


def test_an_expired_signer_is_refused_by_a_clock_that_is_kept() -> None:
    signer = OPERATOR.world.signer("fleet", end=ISSUED + timedelta(hours=1))
    data = OPERATOR.signed(command(), signer)
    assert fleet_gate.open_command(data, TRUST, NOW).refusal == ""
    with pytest.raises(Expired):
        fleet_gate.open_command(data, TRUST, Now(ISSUED + timedelta(days=1), trusted=True))


def mangled(**changes: object) -> bytes:
    table = json.loads(fleet_documents.command_payload(command()))
    return json.dumps({**table, **changes}).encode()


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "1"}, {"id": "A" * 36}, {"sequence": 0}, {"sequence": True}, {"command": ""},
        {"command": "rm -rf"}, {"args": []}, {"args": {"a": "x" * 9000}}, {"target": {}},
        {"target": {"device": "a", "group": "b"}}, {"target": {"device": "a/b"}},
        {"target": {"device": "a.b"}}, {"target": {"labels": {"a": 1}}}, {"schema": 2},
        {"expires": "2027-01-01T00:00:00Z"}, {"expires": "2026-01-01T00:00:00Z"}, {"more": 1},
    ],
)  # fmt: skip
def test_a_command_that_is_not_exactly_one_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(BadDocument):
        fleet_documents.parse_command(mangled(**changes))


@given(st.binary(max_size=400))
def test_bytes_from_anywhere_are_refused_with_a_typed_error(data: bytes) -> None:
    for read in (
        lambda: fleet_gate.open_command(data, TRUST, NOW),
        lambda: fleet_gate.open_desired(data, TRUST, NOW),
        lambda: fleet_documents.parse_command(data),
        lambda: fleet_documents.parse_desired(data),
    ):
        with pytest.raises(OtaError):
            read()


NAMES = st.text("abcXYZ019_-", min_size=1, max_size=20)
VALUES = st.dictionaries(st.text(max_size=8), st.integers(-5, 5) | st.text(max_size=9), max_size=4)


@given(NAMES, VALUES, st.integers(1, 10**9), st.lists(NAMES, max_size=3, unique=True))
def test_documents_survive_writing_and_reading(
    name: str, values: dict[str, object], version: int, groups: list[str]
) -> None:
    end = ISSUED + timedelta(hours=1)
    wish = Desired(f"d:{name}", version, ISSUED, end, {"policy": values}, tuple(groups))
    assert fleet_documents.parse_desired(fleet_documents.desired_payload(wish)) == wish
    said = Command(command().id, version, ISSUED, end, Target(group=name), "cancel", values)
    assert fleet_documents.parse_command(fleet_documents.command_payload(said)) == said


def test_a_group_cannot_say_who_belongs_to_it() -> None:
    wish = Desired("g:blue", 1, ISSUED, ISSUED + timedelta(days=1), {}, ("red",))
    with pytest.raises(BadDocument, match="groups"):
        fleet_documents.parse_desired(fleet_documents.desired_payload(wish))


def test_topics_keep_what_every_broker_takes() -> None:
    topics = Topics("a" * 20 + "/b/c")
    longest = topics.device("d" * 64, "up", "t" * 12, "99999")
    assert longest.count("/") <= 7
    assert len(longest.encode()) <= 256
    assert topics.whose(longest)[0] == "d" * 64
    assert topics.whose("elsewhere/d/x") == ("", "")
    for root in ("", "a//b", "a.b", "a/b/c/d", "+", "a/#"):
        with pytest.raises(InvalidRequest):
            Topics(root)
    for name in ("", "a/b", "a.b", "+", "x" * 65, "ä"):
        with pytest.raises(InvalidRequest):
            topics.device(name, "cmd")


def test_labels_meet_only_who_has_all_of_them() -> None:
    target = Target(labels={"room": "kitchen", "floor": "1"})
    assert target.meets("x", (), {"room": "kitchen", "floor": "1", "more": "2"})
    assert not target.meets("x", (), {"room": "kitchen"})
    assert not Target().meets("x", (), {})
    assert datetime.now(UTC) > START
