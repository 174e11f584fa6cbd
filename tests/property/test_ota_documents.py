"""Envelopes, strict JSON, floors and manifests under any bytes and any order."""

from __future__ import annotations

import contextlib
import json
import random
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.pki import World
from tests.fuzz import documents as fuzz_documents
from tests.fuzz.__main__ import changed
from tests.unit.ota.manifest_rig import manifest_value

from stoker_ota.core import clock, envelope, floors, gate, manifest, strict_json
from stoker_ota.core.clock import Now
from stoker_ota.core.floors import Floors
from stoker_ota.errors import BadDocument, OtaError, Rollback

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)
TRUST = World().trust()
COUNTS = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2**50), max_size=4)
TIMES = st.integers(0, 4_000_000_000).map(lambda at: datetime.fromtimestamp(at, UTC))
FLOORS = st.builds(Floors, COUNTS, COUNTS, TIMES, TIMES)


@given(st.binary(max_size=300))
def test_any_bytes_are_an_envelope_or_a_typed_error(data: bytes) -> None:
    with contextlib.suppress(OtaError):
        envelope.parse(data, max_bytes=200)


@given(
    st.text(max_size=20),
    st.binary(max_size=64),
    st.lists(
        st.tuples(
            st.binary(min_size=64, max_size=64),
            st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=2),
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_envelopes_come_back_as_they_were(kind: str, payload: bytes, parts: list) -> None:  # type: ignore[type-arg]
    made = envelope.Envelope(
        kind, payload, tuple(envelope.Signature(sig, tuple(chain)) for sig, chain in parts)
    )
    assert envelope.parse(envelope.encode(made), max_bytes=1 << 20) == made


@given(st.text(max_size=9), st.binary(max_size=9), st.text(max_size=9), st.binary(max_size=9))
def test_two_different_documents_never_sign_the_same_bytes(
    kind: str, payload: bytes, other_kind: str, other: bytes
) -> None:
    same = (kind, payload) == (other_kind, other)
    assert (envelope.pae(kind, payload) == envelope.pae(other_kind, other)) == same


@given(JSON)
def test_canonical_json_reads_back_and_is_stable(value: object) -> None:
    data = strict_json.dumps(value)
    again = strict_json.loads(data, max_bytes=1 << 20, what="value")
    assert again == value
    assert strict_json.dumps(again) == data


@given(st.text(max_size=60))
def test_strict_json_never_accepts_what_json_refuses(text: str) -> None:
    try:
        strict_json.loads(text.encode("utf-8", "surrogatepass"), max_bytes=999, what="text")
    except OtaError:
        return
    json.loads(text)


@given(st.text(max_size=5), JSON, JSON)
def test_a_repeated_key_is_refused(key: str, first: object, second: object) -> None:
    name = json.dumps(key)
    text = f"{{{name}: {json.dumps(first)}, {name}: {json.dumps(second)}}}"
    with pytest.raises(BadDocument):
        strict_json.loads(text.encode(), max_bytes=1 << 20, what="text")


@given(FLOORS)
def test_floors_come_back_as_they_were(value: Floors) -> None:
    assert floors.decode(floors.encode(value)) == value


@given(FLOORS, st.integers(0, 10**6), st.integers(1, 255))
def test_a_damaged_copy_of_the_floors_is_never_believed(
    value: Floors, where: int, flip: int
) -> None:
    data = bytearray(floors.encode(value))
    data[where % len(data)] ^= flip
    try:
        read = floors.decode(bytes(data))
    except OtaError:
        return
    assert read == value  # a flip that changed nothing that is read


@given(FLOORS, FLOORS)
def test_of_two_copies_each_key_s_higher_value_holds(left: Floors, right: Floors) -> None:
    both = floors.merge(left, right)
    assert both == floors.merge(right, left)
    for name, version in {**left.documents, **right.documents}.items():
        assert both.document(name) >= version
    assert (both.time, both.told) == (max(left.time, right.time), max(left.told, right.told))


NEWS = st.tuples(
    st.sampled_from("ab"), st.integers(1, 99), TIMES, st.builds(Now, TIMES, st.booleans())
)


@given(FLOORS, st.lists(NEWS, max_size=6))
def test_floors_only_rise_and_time_never_beyond_what_a_trusted_clock_reached(
    value: Floors, news: list[tuple[str, int, datetime, Now]]
) -> None:
    for name, version, issued, now in news:
        raised = value.accepted(name, version, issued, now).committed({name: version})
        assert raised.document(name) >= max(version, value.document(name))
        assert value.time <= raised.time
        assert raised.time <= (max(value.time, now.moment) if now.trusted else value.time)
        with pytest.raises(Rollback):
            raised.check_counter(name, version - 1)
        value = raised


@given(TIMES, TIMES, TIMES, st.booleans())
def test_effective_time_is_never_before_a_floor_and_hearsay_never_spoils_a_good_clock(
    now: datetime, floor: datetime, told: datetime, synchronised: bool
) -> None:
    found = clock.effective(now, synchronised=synchronised, floors=(floor,), told=told)
    trusted = synchronised and now >= floor
    assert found == Now(now if trusted else max(now, floor, told), trusted)


@given(TIMES)
def test_times_come_back_as_they_were(moment: datetime) -> None:
    assert clock.parse(clock.write(moment), "time") == moment


KEYS = st.sampled_from([*manifest_value(), "targets", "rollout", "window", "health", "network"])


@given(KEYS, JSON)
def test_a_manifest_with_any_value_anywhere_parses_or_says_why(key: str, value: object) -> None:
    payload = strict_json.dumps(manifest_value(**{key: value}))
    with contextlib.suppress(BadDocument):
        manifest.parse_manifest(payload)


@given(st.binary(max_size=200))
def test_the_gate_answers_any_bytes_with_a_typed_error(data: bytes) -> None:
    for accept in (
        lambda: gate.accept_trust(data, TRUST),
        lambda: gate.accept_catalog(
            data, TRUST, Floors(), None, Now(clock.EARLIEST, trusted=False)
        ),
    ):
        with pytest.raises(OtaError):
            accept()


@pytest.mark.parametrize("name", fuzz_documents.ENTRIES)
def test_every_parser_refuses_changed_documents_with_a_typed_error(name: str) -> None:
    chance = random.Random(name)
    samples = fuzz_documents.samples()[name]
    for _ in range(300):
        fuzz_documents.ENTRIES[name](changed(chance, [*samples, b""]))


@pytest.mark.parametrize("text", ["1e999", "-1e400", '"\\ud800"', '{"\\udfff": 1}'])
def test_what_could_not_be_written_again_is_not_read(text: str) -> None:
    with pytest.raises(BadDocument):
        strict_json.loads(text.encode(), max_bytes=100, what="x")
    pair = strict_json.loads(b'"\\ud83d\\ude00"', max_bytes=100, what="x")
    assert strict_json.dumps(pair) == '"\U0001f600"'.encode()
