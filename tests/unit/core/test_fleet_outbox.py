"""The outbox's order and caps, sequence floors, redaction: what leaves, what stays, what goes."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.core import fleet_floors, fleet_outbox, redaction
from stoker.core.fleet_floors import Floor
from stoker.core.fleet_outbox import Caps
from stoker.events.fleet import RESULT, TELEMETRY, UPLOAD, Parcel

KINDS = st.sampled_from([RESULT, UPLOAD, TELEMETRY])


def parcel(number: int, kind: str, size: int = 100, made_s: float = 0.0) -> Parcel:
    return Parcel(number, kind, "t", size, made_s)


def test_results_go_first_and_suspects_last() -> None:
    waiting = [parcel(1, TELEMETRY), parcel(2, UPLOAD), parcel(3, RESULT), parcel(4, RESULT)]
    assert [item.number for item in fleet_outbox.order(waiting)] == [3, 4, 2, 1]
    assert [item.number for item in fleet_outbox.order(waiting, {3})] == [4, 2, 1, 3]


def test_the_oldest_telemetry_is_given_up_first_and_results_last() -> None:
    waiting = [parcel(1, RESULT), parcel(2, TELEMETRY), parcel(3, UPLOAD), parcel(4, TELEMETRY)]
    for allowed, gone in (
        (400, []),
        (350, [2]),
        (200, [2, 4]),
        (100, [2, 4, 3]),
        (0, [2, 4, 3, 1]),
    ):
        assert fleet_outbox.excess(waiting, Caps(allowed, 1e9), 1.0) == gone


@given(st.lists(st.tuples(KINDS, st.integers(0, 500), st.floats(0, 100)), max_size=40))
def test_what_stays_is_within_both_caps(items: list[tuple[str, int, float]]) -> None:
    waiting = [parcel(n, kind, size, made) for n, (kind, size, made) in enumerate(items)]
    gone = set(fleet_outbox.excess(waiting, Caps(1000, 50.0), 100.0))
    left = [item for item in waiting if item.number not in gone]
    assert sum(item.size_bytes for item in left) <= 1000
    assert all(100.0 - item.made_s <= 50.0 for item in left)
    if any(item.kind == TELEMETRY for item in left):  # nothing better was given up for it
        old = {item.number for item in waiting if 100.0 - item.made_s > 50.0}
        assert all(item.kind == TELEMETRY for item in waiting if item.number in gone - old)


def test_the_head_of_two_lost_connections_is_suspect() -> None:
    assert fleet_outbox.suspects([4, 5], [4, 6]) == {4}
    assert fleet_outbox.suspects([4, 5], [3, 4]) == set()
    assert fleet_outbox.suspects([], [4]) == set()
    assert fleet_outbox.suspects(["d/x/state", 4], ["d/x/state"]) == {"d/x/state"}


@pytest.mark.parametrize("why", [*fleet_outbox.PASSING, "Not authorized"])
def test_what_is_refused_is_tried_again_at_growing_distances(why: str) -> None:
    waits = [fleet_outbox.retry_s(why, tries) for tries in (0, 1, 2, 50)]
    assert waits == sorted(waits)
    assert 1.0 <= waits[0] < waits[1]
    assert waits[-1] <= 3600.0


def test_commands_may_overtake_each_other_but_not_come_back_later() -> None:
    floor = fleet_floors.accepted(Floor(), 100)
    assert not fleet_floors.replayed(floor, 99)
    assert not fleet_floors.replayed(floor, 101)
    assert fleet_floors.replayed(floor, 100 - fleet_floors.WINDOW)


def test_lost_or_forgotten_records_close_what_was_before() -> None:
    floor = fleet_floors.accepted(Floor(), 100)
    assert fleet_floors.replayed(fleet_floors.records_lost(floor), 100)
    assert not fleet_floors.replayed(fleet_floors.records_lost(floor), 101)
    assert fleet_floors.replayed(fleet_floors.forgotten(floor, 98), 98)
    assert not fleet_floors.replayed(fleet_floors.forgotten(floor, 98), 99)


@given(st.lists(st.integers(1, 300), max_size=60))
def test_a_forgotten_sequence_never_counts_as_new(sequences: list[int]) -> None:
    floor, done = Floor(), set()
    for sequence in sequences:
        if not fleet_floors.replayed(floor, sequence) and sequence not in done:
            floor = fleet_floors.accepted(floor, sequence)
            done.add(sequence)
    for sequence in sorted(done):
        floor = fleet_floors.forgotten(floor, sequence)
    assert all(fleet_floors.replayed(floor, sequence) for sequence in done)


def test_secrets_do_not_leave() -> None:
    lines = (
        "password = hunter2, token: abcdef\n"
        'api_key="s3cr3t value" next\n'
        "Authorization: Bearer abcdefghijkl\n"
        "mqtts://user:word@host:8883 by joe@example.com\n"
        "-----BEGIN PRIVATE KEY-----\nMIG\n-----END PRIVATE KEY-----\n"
        "max_tokens = 5; prompt_tokens: 7"
    )
    out = redaction.text(lines)
    for secret in ("hunter2", "abcdef", "s3cr3t", "user:word", "joe@", "MIG"):
        assert secret not in out, out
    assert "max_tokens = 5; prompt_tokens: 7" in out
    assert "@host:8883" in out


def test_settings_keep_their_names_and_lose_their_secrets() -> None:
    flat = {
        "runner.shared_prefixes": ("You are a pirate",), "fleet.username": "dev",
        "fleet.password_file": "", "thermal.wall_c": 60.0, "updates.sources": ("/a",),
    }  # fmt: skip
    assert redaction.settings(flat) == {
        "runner.shared_prefixes": redaction.GONE, "fleet.username": redaction.GONE,
        "fleet.password_file": "", "thermal.wall_c": 60.0, "updates.sources": ["/a"],
    }  # fmt: skip


def _tables(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.dictionaries(st.text(max_size=8), inner, max_size=4)


@given(st.recursive(st.text(max_size=30) | st.integers() | st.booleans(), _tables))
def test_redaction_keeps_the_shape_of_facts(fact: object) -> None:
    found = redaction.value(fact)
    assert type(found) is type(fact)
    if isinstance(fact, dict):
        assert isinstance(found, dict)
        assert found.keys() == fact.keys()


def test_what_a_secrets_name_holds_is_one_of_any_shape() -> None:
    facts = {"hf_token": 123456, "pw": {"password": ["hunter2"]}, "api_key": {"a": "b"},
             "secret": True, "token": "", "max_tokens": 5}  # fmt: skip
    assert redaction.value(facts) == {
        "hf_token": redaction.GONE, "pw": {"password": redaction.GONE}, "api_key": redaction.GONE,
        "secret": True, "token": "", "max_tokens": 5,
    }  # fmt: skip
    assert redaction.settings({"web.api_key": 77}) == {"web.api_key": redaction.GONE}


@pytest.mark.parametrize(
    "line", ["--api-key s3cret", "run --hf_token 's3cret x' y", "-password\ts3cret",
             "--token=s3cret", '"password": ["s3cret"]', "x" * 500 + "password=s3cret",
             "a." * 200 + "b://u:s3cret@h", "y" * 500 + "s3cret@host.org"],
)  # fmt: skip
def test_a_secret_on_a_line_is_gone_however_it_is_written(line: str) -> None:
    assert "s3cret" not in redaction.text(line)


@pytest.mark.parametrize(
    "piece", ["a-", "a.", "x", "ab+", "ab/", "a_", "a@", "password ", "://", "-"]
)
def test_a_hostile_line_costs_time_by_its_length_only(piece: str) -> None:
    def took_s(length: int) -> float:
        line, begun = piece * (length // len(piece)), time.process_time()
        redaction.text(line)
        return time.process_time() - begun

    took_s(1000)
    short = min(took_s(8000) for _ in range(3))
    assert min(took_s(64_000) for _ in range(2)) < 8 * 4 * max(short, 0.002)


def test_an_upload_gets_what_the_outbox_keeps_for_sure() -> None:
    caps = Caps(256 << 10, 1e9)
    room = fleet_outbox.upload_room([parcel(1, RESULT, 9999)], caps)
    assert room == 192 << 10
    assert fleet_outbox.upload_room([parcel(1, UPLOAD, 100 << 10)], caps) == 92 << 10
    assert fleet_outbox.upload_room([parcel(1, UPLOAD, 1 << 20)], caps) == 0
