"""Requests to the fetching child, and catalogs that nobody has verified yet."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz import fetching, fleet
from tests.fuzz.__main__ import changed

from stoker_ota.core import envelope, fetch_request, listing
from stoker_ota.core.listing import Named
from stoker_ota.errors import OtaError
from stoker_ota.values.chunks import Chunks
from stoker_ota.values.fetching import (
    Broker,
    DocumentsRequest,
    Link,
    ObjectRequest,
    Tls,
    Wanted,
)

TEXT = st.text(max_size=20).filter(lambda text: text.isprintable())
HASH = st.text("0123456789abcdef", min_size=64, max_size=64)
PATH = TEXT.map(lambda text: "/" + text)
TLS = st.builds(Tls, TEXT, TEXT, TEXT)
BROKER = st.builds(
    Broker, TEXT, st.integers(0, 65535), TEXT, TEXT, TEXT, TEXT, TEXT, st.none() | TLS
)
LINK = st.builds(
    Link, TLS, TEXT, st.booleans(), st.integers(0, 1 << 40), st.integers(1, 64), st.none() | BROKER
)
WANTED = st.builds(
    Wanted, st.integers(0, 1 << 40), HASH, st.lists(TEXT, max_size=3).map(tuple),
    st.none() | st.builds(Chunks, st.integers(1 << 10, 120 << 10), HASH),
    st.integers(0, 1 << 40), st.booleans(),
)  # fmt: skip
REQUEST = st.one_of(
    st.builds(ObjectRequest, PATH, WANTED, LINK, TEXT, st.floats(0, 86_400)),
    st.builds(DocumentsRequest, PATH, TEXT, st.integers(0, 1 << 50), LINK),
)


@given(REQUEST)
def test_a_request_comes_back_as_it_was(request: ObjectRequest | DocumentsRequest) -> None:
    line = fetch_request.encode(request)
    assert line.count(b"\n") == 1
    assert fetch_request.decode(line) == request


@given(st.binary(max_size=200) | st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["object", "documents", "part", "wanted", "link"]), inner, max_size=3
    ),
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_anything_else_is_refused_with_a_reason(data: bytes) -> None:
    with pytest.raises(OtaError):
        fetch_request.decode(data)


def catalog(manifests: object) -> bytes:
    payload = json.dumps({"schema": 1, "manifests": manifests}).encode()
    signature = envelope.Signature(bytes(64), (b"der",))
    return envelope.encode(envelope.Envelope("type", payload, (signature,)))


def test_the_names_of_a_catalog_are_read_and_no_path_is_among_them() -> None:
    entry = {"version": 1, "sha256": "ab" * 32, "length": 10}
    assert listing.of_catalog(catalog({"chat": entry})) == (Named("chat", "ab" * 32, 10),)
    for name in ("../x", "a/b", "..", "a..b", "", "A"):
        with pytest.raises(OtaError):
            listing.of_catalog(catalog({name: entry}))
    for bad in ({**entry, "sha256": "x"}, {**entry, "length": -1}, 7):
        with pytest.raises(OtaError):
            listing.of_catalog(catalog({"chat": bad}))


@given(st.binary(max_size=300))
def test_any_bytes_are_a_catalog_or_a_reason(data: bytes) -> None:
    with pytest.raises(OtaError):
        listing.of_catalog(data)


@pytest.mark.parametrize("name", [*fetching.ENTRIES, *fleet.ENTRIES])
def test_the_fuzzer_s_entries_hold_on_changed_samples(name: str) -> None:
    part = fetching if name in fetching.ENTRIES else fleet
    chance, samples, entry = random.Random(name), part.samples()[name], part.ENTRIES[name]
    for data in samples:
        entry(data)
    for _ in range(300):
        entry(changed(chance, [*samples, b""]))
