"""What a device takes in from a bundle, and what it remembers of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from tests.fakes.disk import FakeDisk
from tests.fakes.pki import START, Party, World, seal
from tests.unit.ota.manifest_rig import manifest_payload

from stoker_ota.core import documents, manifest
from stoker_ota.core.clock import Now
from stoker_ota.core.documents import Trust
from stoker_ota.errors import (
    BadChain,
    BadSignature,
    FileUnreadable,
    Freeze,
    InvalidRequest,
    MixAndMatch,
    OtaError,
    Rollback,
)
from stoker_ota.services.intake import Intake, choose, offer
from stoker_ota.services.store import Store

NOW = Now(START + timedelta(days=2), trusted=True)
NO_CLOCK = Now(START, trusted=False)


def _trust(trust: Trust, *parties: Party) -> bytes:
    return seal(documents.TRUST_TYPE, documents.trust_payload(trust), *parties)


@dataclass
class Folder:
    files: dict[str, bytes] = field(default_factory=dict)

    def read(self, name: str, max_bytes: int) -> bytes | None:
        assert max_bytes > 0
        return self.files.get(name)


@dataclass
class Bench:
    world: World = field(default_factory=World)
    disk: FakeDisk = field(default_factory=FakeDisk)

    def __post_init__(self) -> None:
        self.store = Store(self.disk)
        self.first = _trust(self.world.trust(), self.world.parties["trust"])

    def intake(self) -> Intake:
        return Intake(self.store, self.first)

    def bundle(self, number: int = 1, world: World | None = None, **changes: object) -> Folder:
        """A catalog of this version with manifest ``chat`` of the same version."""
        signers = (world or self.world).parties
        data = seal(
            manifest.MANIFEST_TYPE,
            manifest_payload(**{"version": number, **changes}),
            signers["release"],
        )
        catalog = (world or self.world).catalog(number, ("chat", number, data))
        payload = documents.catalog_payload(catalog)
        return Folder(
            {
                "catalog.json": seal(documents.CATALOG_TYPE, payload, signers["catalog"]),
                "manifests/chat.json": data,
            }
        )


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.fixture
def bench(world: World) -> Bench:
    return Bench(world)


def test_a_bundle_is_accepted_again_and_an_older_one_is_not(bench: Bench) -> None:
    for number in (1, 2, 2):
        judged = bench.intake().accept(bench.bundle(number), NOW)
        assert choose(judged, "").version == number
    with pytest.raises(Rollback):
        bench.intake().accept(bench.bundle(1), NOW)
    assert bench.store.floors().document("catalog") == 2


def test_looking_keeps_nothing(bench: Bench) -> None:
    assert bench.intake().inspect(bench.bundle(5), NOW).catalog.version == 5
    assert bench.store.floors().documents == {}
    assert bench.store.document("catalog") is None
    bench.intake().accept(bench.bundle(1), NOW)


def test_newer_trust_in_the_bundle_is_walked_and_kept(bench: Bench) -> None:
    folder = bench.bundle(1)
    second = bench.world.trust(2, revoked=frozenset({bench.world.parties["release"].spki}))
    folder.files["trust/2.json"] = _trust(second, bench.world.parties["trust"])
    judged = bench.intake().accept(folder, NOW)
    assert judged.trust.version == 2
    with pytest.raises(OtaError, match="revoked"):
        choose(judged, "chat")
    del folder.files["trust/2.json"]  # it is known from now on
    assert bench.intake().accept(folder, NOW).trust.version == 2


def test_a_stranger_s_trust_is_not_walked(bench: Bench) -> None:
    other = World()
    folder = bench.bundle(1, world=other)
    folder.files["trust/2.json"] = _trust(other.trust(2), other.parties["trust"])
    with pytest.raises((BadChain, BadSignature)):
        bench.intake().accept(folder, NOW)
    assert bench.store.floors().documents == {}


def test_another_first_document_is_the_owner_s_word(bench: Bench) -> None:
    bench.intake().accept(bench.bundle(7), NOW)
    other = Bench(World(), bench.disk)
    judged = other.intake().accept(other.bundle(1), NOW)
    assert choose(judged, "chat").version == 1
    with pytest.raises(BadChain):
        other.intake().accept(bench.bundle(8), NOW)


def test_without_a_clock_only_news_and_the_same_again_are_taken(bench: Bench) -> None:
    assert bench.intake().accept(bench.bundle(1), NO_CLOCK).degraded
    folder = bench.bundle(2)
    bench.intake().accept(folder, NO_CLOCK)
    bench.intake().accept(folder, NO_CLOCK)
    with pytest.raises(Rollback):
        bench.intake().accept(bench.bundle(1), NO_CLOCK)


def test_expired_trust_and_a_missing_catalog_are_named(bench: Bench) -> None:
    late = Now(START + timedelta(days=400), trusted=True)
    with pytest.raises(Freeze, match="trust"):
        bench.intake().accept(bench.bundle(1), late)
    with pytest.raises(FileUnreadable, match=r"catalog\.json"):
        bench.intake().accept(Folder(), NOW)


def test_one_bad_manifest_does_not_spoil_the_catalog(bench: Bench) -> None:
    folder = bench.bundle(1)
    folder.files["manifests/chat.json"] += b" "
    judged = bench.intake().accept(folder, NOW)
    assert judged.listed["chat"].manifest is None
    with pytest.raises((MixAndMatch, OtaError)):
        choose(judged, "chat")
    del folder.files["manifests/chat.json"]
    with pytest.raises(InvalidRequest, match="no deployment"):
        choose(bench.intake().accept(folder, NOW), "")
    with pytest.raises(InvalidRequest, match="vision"):
        choose(bench.intake().accept(bench.bundle(1), NOW), "vision")


def test_the_offer_says_what_the_manifest_wants(bench: Bench) -> None:
    folder = bench.bundle(1, health={"confirm": "dbus"}, network={"allow_full": False})
    made = offer(choose(bench.intake().accept(folder, NOW), ""), forced=True)
    assert (made.confirm, made.allow_full, made.forced, made.version) == (True, False, True, 1)
