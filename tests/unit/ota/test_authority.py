"""What an operator makes is what devices accept, and keys are never in the clear."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from stoker_ota.core import chain, documents, gate, manifest, probes, recipe
from stoker_ota.core.clock import Now
from stoker_ota.core.documents import Catalog
from stoker_ota.core.floors import Floors
from stoker_ota.core.recipe import Measured, MeasuredDelta
from stoker_ota.core.rules import Entry
from stoker_ota.errors import BadChain, BadDocument, InvalidRequest, Revoked
from stoker_ota.services import authority
from stoker_ota.services.authority import Holder, Terms

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HERE = Now(NOW + timedelta(days=1), trusted=True)
OLD, NEW, DELTA = "aa" * 32, "bb" * 32, "cc" * 32
RECIPE = {
    "deployment_id": "chat",
    "version": 1,
    "issued_at": "2026-01-01T12:00:00Z",
    "expires": "2026-03-01T00:00:00Z",
    "artifacts": [
        {"kind": "model", "name": "m", "version": "2", "file": "v2", "deltas": ["d"]},
    ],
}
FILES = {"v2": Measured(10, NEW)}
DELTAS = {"d": MeasuredDelta(3, DELTA, "dd" * 32, OLD, NEW)}


@pytest.fixture(scope="module")
def holders() -> dict[str, Holder]:
    return authority.found(
        "Example Ltd", NOW, Terms(), lambda: ec.generate_private_key(ec.SECP256R1())
    )


def test_every_role_s_signer_leads_to_the_first_anchor_through_its_intermediate(
    holders: dict[str, Holder],
) -> None:
    anchor = holders["anchor-1"].certificate
    for role in documents.ROLES:
        signer = chain.verify(holders[role].chain, [anchor])
        assert signer.uris == {authority.role_uri(role)}
        with pytest.raises(BadChain):
            chain.verify(holders[role].chain, [holders["anchor-2"].certificate])


def test_what_is_published_is_accepted_by_a_device_from_trust_to_manifest(
    holders: dict[str, Holder],
) -> None:
    trust = authority.first_trust(holders, NOW, 365)
    payload = recipe.payload(recipe.parse(RECIPE), FILES, DELTAS)
    signed = authority.sign(manifest.MANIFEST_TYPE, payload, (holders["release"],))
    entry = Entry(1, hashlib.sha256(signed).hexdigest(), len(signed))
    catalog = Catalog(1, NOW, NOW + timedelta(days=7), {"chat": entry})
    data = authority.sign(
        documents.CATALOG_TYPE, documents.catalog_payload(catalog), (holders["catalog"],)
    )
    accepted = gate.accept_catalog(data, trust, Floors(), None, HERE).catalog
    found = gate.accept_manifest("chat", signed, trust, accepted, Floors(), HERE)
    assert found.artifacts[0].sha256 == NEW
    assert found.artifacts[0].deltas[0].sources[0].uri == f"file:blobs/{DELTA}"


def test_a_second_anchor_s_signer_is_accepted_when_the_first_is_lost(
    holders: dict[str, Holder],
) -> None:
    trust = authority.first_trust(holders, NOW, 365)
    key = ec.generate_private_key(ec.SECP256R1())
    spare = authority.issue(
        "trust", "Example Ltd", holders["intermediate-2"], NOW, 365, key, role="trust"
    )
    lost = chain.spki_hash(holders["anchor-1"].certificate)
    following = replace(trust, version=2, revoked=frozenset({lost}))
    data = authority.sign(documents.TRUST_TYPE, documents.trust_payload(following), (spare,))
    after = gate.accept_trust(data, trust)
    with pytest.raises(Revoked):
        chain.verify(holders["release"].chain, after.anchors, after.revoked)


def test_same_inputs_give_the_same_bytes(holders: dict[str, Holder]) -> None:
    payload = recipe.payload(recipe.parse(RECIPE), FILES, DELTAS)
    assert payload == recipe.payload(recipe.parse(dict(reversed(RECIPE.items()))), FILES, DELTAS)
    once, again = (
        authority.sign(manifest.MANIFEST_TYPE, payload, (holders["release"],)) for _ in range(2)
    )
    assert once == again


def test_a_key_is_written_only_encrypted_and_opens_only_with_its_passphrase(
    holders: dict[str, Holder],
) -> None:
    holder = holders["release"]
    pem, certificates = authority.key_pem(holder, b"a passphrase"), authority.chain_pem(holder)
    assert b"ENCRYPTED" in pem
    assert authority.load("release", pem, certificates, b"a passphrase").chain == holder.chain
    with pytest.raises(InvalidRequest):
        authority.load("release", pem, certificates, b"another one")
    with pytest.raises(InvalidRequest):
        authority.key_pem(holder, b"")
    with pytest.raises(BadChain, match="another"):
        authority.load("x", pem, authority.chain_pem(holders["catalog"]), b"a passphrase")


def test_a_delta_that_leads_elsewhere_is_not_published() -> None:
    wrong = {"d": replace(DELTAS["d"], to_sha256=OLD)}
    with pytest.raises(BadDocument, match="leads to another file"):
        recipe.payload(recipe.parse(RECIPE), FILES, wrong)


def test_what_a_device_would_refuse_is_not_published() -> None:
    adapter = {"kind": "adapter", "name": "a", "version": "1", "file": "v2"}
    with pytest.raises(BadDocument, match="base_sha256"):
        recipe.payload(recipe.parse({**RECIPE, "artifacts": [adapter]}), FILES, {})
    with pytest.raises(BadDocument, match="unknown key"):
        recipe.parse({**RECIPE, "artefacts": []})


def test_probe_bounds_hold_every_measured_variant_and_no_broken_one() -> None:
    good = [{"hello": 2.0, "world": 3.0}, {"hello": 2.2, "world": 2.9}]
    hello, world = probes.bounds(good, 0.1)
    assert hello.min_nats <= 2.0
    assert 2.2 <= hello.max_nats < 4.0
    assert world.text == "world"
    for wrong in ([{"hello": 2.0}, {"other": 2.0}], good):
        with pytest.raises(InvalidRequest):
            probes.bounds(wrong, 5.0 if wrong is good else 0.1)
    with pytest.raises(BadDocument):
        probes.parse(b'{"text": "hello"}')
    assert probes.parse(b'{"text": "hello", "nats_per_token": 2}\n') == {"hello": 2.0}
