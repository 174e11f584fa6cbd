"""Entries for a fuzzer: what servers, brokers and a half-written disk may give to fetching.

As in ``delta``: a typed error is the parser doing its work, anything else is a bug.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from stoker_ota.core import chunks, envelope, fetch_request, have, listing, web_rules
from stoker_ota.errors import OtaError
from stoker_ota.values.chunks import ChunkIndex, Chunks
from stoker_ota.values.fetching import Broker, DocumentsRequest, Link

_TOTAL, _SIZE = 5000, 1024
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def index() -> ChunkIndex:
    pieces = [bytes([n]) * min(_SIZE, _TOTAL - n * _SIZE) for n in range(5)]
    return chunks.index_of(pieces, _TOTAL, _SIZE)


def root(data: bytes) -> None:
    """Also under its own hash: then length and head must be right."""
    for name in (hashlib.sha256(data).hexdigest(), chunks.of_index(index()).root):
        try:
            pages = chunks.parse_root(data, Chunks(_SIZE, name), _TOTAL)
        except OtaError:
            continue
        assert len(pages) == 1


def pages(data: bytes) -> None:
    wanted = chunks.of_index(index())
    try:
        found = chunks.of_pages(data, wanted, _TOTAL)
    except OtaError:
        return
    assert found == index()


def bitmap(data: bytes) -> None:
    """Whatever the disk gives back is a bitmap of the right size."""
    found = have.decode(data, "ab" * 32, 11)
    assert found.count == 11
    assert found.held + len(list(found.missing())) == 11
    assert have.decode(found.encode(), "ab" * 32, 11).held == found.held


def request(data: bytes) -> None:
    try:
        found = fetch_request.decode(data)
    except OtaError:
        return
    assert fetch_request.decode(fetch_request.encode(found)) == found


def names(data: bytes) -> None:
    try:
        found = listing.of_catalog(data)
    except OtaError:
        return
    assert not any("/" in item.name or ".." in item.name for item in found)


def headers(data: bytes) -> None:
    text = data.decode("latin-1")
    wait_s = web_rules.retry_after_s(text, _NOW)
    assert wait_s is None or wait_s >= 0
    assert web_rules.told_length(text) >= -1
    mark = web_rules.validator(text, None)
    assert "\r" not in mark
    assert "\n" not in mark
    with contextlib.suppress(OtaError):
        assert 0 < web_rules.check_range(text, 0, 100) <= 100
    with contextlib.suppress(OtaError):
        assert web_rules.redirected("https://a/b", text, plain=False).startswith("https://")


def samples() -> dict[str, list[bytes]]:
    wanted = chunks.of_index(index())
    journal = have.Have("ab" * 32, 11)
    journal.add(3)
    entry = {"version": 1, "sha256": "ab" * 32, "length": 10}
    payload = json.dumps({"schema": 1, "manifests": {"chat": entry}}).encode()
    signed = envelope.Envelope("t", payload, (envelope.Signature(bytes(64), (b"der",)),))
    link = Link(broker=Broker("h"))
    return {
        "root": [chunks.root(index())],
        "pages": list(chunks.pages(index())),
        "bitmap": [journal.encode()],
        "request": [fetch_request.encode(DocumentsRequest("/x", wanted.root, 1, link))],
        "names": [envelope.encode(signed)],
        "headers": [b"bytes 0-9/100", b"120", b"Thu, 01 Jan 2026 00:01:00 GMT", b'"tag"', b"/x"],
    }


ENTRIES: Final[dict[str, Callable[[bytes], None]]] = {
    "root": root, "pages": pages, "bitmap": bitmap, "request": request, "names": names,
    "headers": headers,
}  # fmt: skip
