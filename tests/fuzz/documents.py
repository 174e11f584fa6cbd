"""Entries for a fuzzer, one a parser of documents and of what the store keeps.

As in ``delta``: a typed error is the parser doing its work, anything else is a bug.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from cryptography.hazmat.primitives.serialization import Encoding
from tests.fakes.pki import World, seal
from tests.unit.ota.manifest_rig import manifest_payload

from stoker_ota.core import archive, chain, documents, floors, history, journal
from stoker_ota.core import envelope as envelopes
from stoker_ota.core import manifest as manifests
from stoker_ota.core.floors import Floors
from stoker_ota.errors import OtaError
from stoker_ota.values.deployment import Journal, Offer, Phase

T = TypeVar("T")
_MOST: Final = 1 << 20


def envelope(data: bytes) -> None:
    """What is read is what would be written."""
    try:
        found = envelopes.parse(data, max_bytes=_MOST)
    except OtaError:
        return
    assert envelopes.parse(envelopes.encode(found), max_bytes=2 * _MOST) == found


def the_same_again(data: bytes, parse: Callable[[bytes], T], write: Callable[[T], bytes]) -> None:
    """What is taken says the same once it is written."""
    try:
        found = parse(data)
    except OtaError:
        return
    assert parse(write(found)) == found


def manifest(data: bytes) -> None:
    try:
        found = manifests.parse_manifest(data)
    except OtaError:
        return
    assert found.artifacts
    assert ".." not in found.deployment_id
    assert "/" not in found.deployment_id


def catalog(data: bytes) -> None:
    the_same_again(data, documents.parse_catalog, documents.catalog_payload)


def trust(data: bytes) -> None:
    the_same_again(data, documents.parse_trust, documents.trust_payload)


def runtime(data: bytes) -> None:
    """What is taken lies inside, in order, and no byte of it is free."""
    try:
        found = archive.entries(lambda at, size: data[at : at + size], len(data))
    except OtaError:
        return
    total = archive.total_bytes((entry.name, entry.size) for entry in found)
    assert total == len(data)
    assert all(0 < entry.offset <= len(data) - entry.size for entry in found)


def kept(data: bytes) -> None:
    """The journal, the floors and the history of a store that somebody wrote into."""
    for decode in (journal.decode, floors.decode):
        try:
            decode(data)
        except OtaError:
            continue
    assert history.read(data).good_bytes <= len(data)


def certificate(data: bytes) -> None:
    """One of a signature's chain: it has a single form, and what is asked of it is answered."""
    try:
        found = chain.load(data)
        chain.verify((data,), [found])
    except OtaError:
        return
    assert found.public_bytes(Encoding.DER) == data


def samples() -> dict[str, list[bytes]]:
    """Good ones, for changing."""
    world = World()
    manifest_text = manifest_payload()
    listed = world.catalog(1, ("chat", 1, manifest_text))
    catalog_text = documents.catalog_payload(listed)
    line, _ = history.line({"what": "committed"}, history.START)
    journaled = Journal(Phase.FETCHING, Offer("chat", 1, "a" * 64))
    return {
        "envelope": [seal(documents.CATALOG_TYPE, catalog_text, world.parties["catalog"])],
        "manifest": [manifest_text],
        "catalog": [catalog_text],
        "trust": [documents.trust_payload(world.trust())],
        "runtime": [archive.header("a.so", 3) + b"abc" + archive.padding(3) + archive.END],
        "kept": [journal.encode(journaled), floors.encode(Floors({"trust": 1})), line * 2],
        "certificate": [der for party in world.parties.values() for der in party.chain],
    }


ENTRIES: Final[dict[str, Callable[[bytes], None]]] = {
    entry.__name__: entry
    for entry in (envelope, manifest, catalog, trust, runtime, kept, certificate)
}
