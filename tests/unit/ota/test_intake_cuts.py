"""What an intake leaves when it is cut short, when its documents are damaged, and when a signer's
clock runs ahead: the device takes the next good bundle, and nothing older.
"""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.fakes.disk import PowerCutError
from tests.fakes.pki import START, World, seal
from tests.unit.ota.test_intake import NO_CLOCK, NOW, Bench, Folder

from stoker_ota.core import documents, envelope
from stoker_ota.core.clock import Now, effective
from stoker_ota.core.floors import Floors
from stoker_ota.errors import Freeze, OtaError, Rollback
from stoker_ota.services.store import Store


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.fixture
def bench(world: World) -> Bench:
    return Bench(world)


def _with_trust(bench: Bench, number: int, version: int, **changes: object) -> Folder:
    """A bundle that brings this version of trust, in which the first catalog key is revoked."""
    folder = bench.bundle(number)
    revoked = frozenset({bench.world.parties["catalog"].spki})
    following = bench.world.trust(version, revoked=revoked, **changes)
    payload = envelope.parse(folder.files["catalog.json"], max_bytes=1 << 20).payload
    signer = bench.world.signer("catalog")
    folder.files["catalog.json"] = seal(documents.CATALOG_TYPE, payload, signer)
    trust = seal(
        documents.TRUST_TYPE, documents.trust_payload(following), bench.world.parties["trust"]
    )
    folder.files[f"trust/{version}.json"] = trust
    return folder


def _from_the_future(bench: Bench, days: int) -> Folder:
    folder = bench.bundle(1)
    payload = envelope.parse(folder.files["catalog.json"], max_bytes=1 << 20).payload
    far = replace(
        documents.parse_catalog(payload),
        issued_at=START + timedelta(days=days),
        expires=START + timedelta(days=days + 7),
    )
    signer = bench.world.signer("catalog", end=START + timedelta(days=4000))
    folder.files["catalog.json"] = seal(
        documents.CATALOG_TYPE, documents.catalog_payload(far), signer
    )
    return folder


def _now(floors: Floors, days: int, *, synchronised: bool) -> Now:
    moment = START + timedelta(days=days)
    return effective(moment, synchronised=synchronised, floors=(floors.time,), told=floors.told)


def test_a_catalog_from_the_future_does_not_spoil_a_good_clock(bench: Bench) -> None:
    bench.intake().accept(_from_the_future(bench, 300), NO_CLOCK)
    floors = bench.store.floors()
    assert _now(floors, -9000, synchronised=False).moment == START + timedelta(days=300)
    now = _now(floors, 3, synchronised=True)
    assert now.trusted
    judged = bench.intake().accept(bench.bundle(2), now)
    assert judged.listed["chat"].refusal is None
    assert bench.store.floors().told < START  # a trusted clock knows better


def test_new_keys_also_begin_time_anew(bench: Bench) -> None:
    bench.intake().accept(bench.bundle(1), NOW)
    bench.store.save_floors(replace(bench.store.floors(), time=START + timedelta(days=9000)))
    bricked = _now(bench.store.floors(), 3, synchronised=True)
    assert not bricked.trusted
    bench.intake().accept(_with_trust(bench, 2, 2), bricked)
    assert _now(bench.store.floors(), 3, synchronised=True).trusted


@pytest.mark.parametrize("name", ["trust", "catalog"])
def test_a_damaged_document_does_not_refuse_every_bundle_for_ever(bench: Bench, name: str) -> None:
    bench.intake().accept(bench.bundle(1), NOW)
    bench.disk.write(f"trust/{name}.json", b"{junk")
    assert bench.intake().inspect(bench.bundle(2), NOW).catalog.version == 2
    bench.intake().accept(bench.bundle(2), NOW)
    with pytest.raises(Rollback):
        bench.intake().accept(bench.bundle(1), NOW)
    assert bench.store.document(name) != b"{junk"


def test_damage_does_not_bring_back_whom_a_newer_trust_revoked(bench: Bench) -> None:
    folder = _with_trust(bench, 1, 2)
    bench.intake().accept(folder, NOW)
    bench.disk.write("trust/trust.json", b"{junk")
    with pytest.raises(Rollback, match="trust 1"):
        bench.intake().accept(bench.bundle(2), NOW)
    with pytest.raises(Rollback):
        bench.intake().trust()
    assert bench.intake().accept(folder, NOW).trust.version == 2
    assert "trust.json.broken" in bench.disk.names("trust")


def test_an_expired_catalog_does_not_keep_a_revocation_out(bench: Bench) -> None:
    bench.intake().accept(bench.bundle(1), NOW)
    late = Now(START + timedelta(days=9), trusted=True)
    with pytest.raises(Freeze, match="catalog"):
        bench.intake().accept(_with_trust(bench, 2, 2), late)
    assert bench.intake().trust().version == 2


def test_junk_after_a_good_step_of_trust_is_judged_before_more_is_read(bench: Bench) -> None:
    read: list[str] = []

    class Junk(Folder):
        def read(self, name: str, max_bytes: int) -> bytes | None:
            read.append(name)
            return bytes(1000)

    with pytest.raises(OtaError):
        bench.intake().inspect(Junk(), NOW)
    assert read == ["trust/2.json"]


@pytest.mark.parametrize("now", [NOW, NO_CLOCK], ids=["clock", "no-clock"])
@pytest.mark.parametrize("fresh_keys", [False, True])
def test_after_a_cut_at_any_moment_the_same_bundle_is_accepted(
    world: World, now: Now, fresh_keys: bool
) -> None:
    at = 0
    while True:
        at += 1
        bench = Bench(world)
        bench.intake().accept(bench.bundle(1), NOW)
        folder = bench.bundle(2)
        if fresh_keys:  # a thief has counted up as far as it goes
            floors = replace(bench.store.floors(), documents={"trust": 1, "catalog": 2**52})
            bench.store.save_floors(floors)
            folder = _with_trust(bench, 2, 2)
        bench.disk.cut_at = bench.disk.count + at
        try:
            bench.intake().accept(folder, now)
        except PowerCutError:
            bench.disk = bench.disk.after_cut(random.Random(at))
            bench.store = Store(bench.disk)
            assert bench.intake().accept(folder, now).catalog.version == 2
        else:
            break
    assert at > 10


def test_after_a_cut_another_first_document_is_still_the_owner_s_word(world: World) -> None:
    other, at = World(), 0
    while True:
        at += 1
        bench = Bench(world)
        bench.intake().accept(bench.bundle(7), NOW)
        owner = Bench(other, bench.disk)
        owner.disk.cut_at = owner.disk.count + at
        try:
            owner.intake().accept(owner.bundle(1), NOW)
        except PowerCutError:
            owner = Bench(other, owner.disk.after_cut(random.Random(at)))
            owner.intake().accept(owner.bundle(1), NOW)
        else:
            break
    assert at > 10
