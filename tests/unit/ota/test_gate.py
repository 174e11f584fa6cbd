"""What this device accepts: TUF's attacks, each with the error that names it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from tests.fakes.pki import CODE_SIGNING, START, Party, World, seal, uri
from tests.unit.ota.manifest_rig import manifest_payload

from stoker_ota.core import documents, gate, manifest
from stoker_ota.core.clock import EARLIEST, Now, effective
from stoker_ota.core.documents import Catalog, Role, Trust
from stoker_ota.core.floors import Floors
from stoker_ota.errors import (
    BadChain,
    BadDocument,
    BadSignature,
    Expired,
    Freeze,
    MixAndMatch,
    Revoked,
    Rollback,
    TooLarge,
)

DAY = timedelta(days=1)
NOW = Now(START + 2 * DAY, trusted=True)
NO_CLOCK = effective(EARLIEST, synchronised=False, floors=(START,))


@pytest.fixture(scope="module")
def world() -> World:
    return World()


def _catalog(world: World, catalog: Catalog, *parties: Party) -> bytes:
    payload = documents.catalog_payload(catalog)
    return seal(documents.CATALOG_TYPE, payload, *(parties or (world.parties["catalog"],)))


def _trust(trust: Trust, *parties: Party) -> bytes:
    return seal(documents.TRUST_TYPE, documents.trust_payload(trust), *parties)


def _manifest(world: World, *parties: Party, **changes: object) -> bytes:
    signers = parties or (world.parties["release"],)
    return seal(manifest.MANIFEST_TYPE, manifest_payload(**changes), *signers)


def _accept_manifest(
    world: World, data: bytes, *, now: Now = NOW, floors: Floors | None = None, version: int = 1
) -> manifest.Manifest:
    catalog = world.catalog(1, ("chat", version, data))
    return gate.accept_manifest("chat", data, world.trust(), catalog, floors or Floors(), now)


def test_a_catalog_and_a_manifest_of_the_right_signers_are_accepted(world: World) -> None:
    data = _manifest(world)
    assert _accept_manifest(world, data).artifacts[0].name == "smollm2"
    catalog = world.catalog(3, ("chat", 1, data))
    accepted = gate.accept_catalog(_catalog(world, catalog), world.trust(), Floors(), None, NOW)
    assert accepted == gate.AcceptedCatalog(catalog, degraded=False)


def test_a_signer_of_another_role_does_not_count(world: World) -> None:
    data = _manifest(world, world.parties["catalog"])
    with pytest.raises(BadChain, match="role"):
        _accept_manifest(world, data)


def test_a_leaf_without_the_role_s_extended_key_usage_does_not_count(world: World) -> None:
    stranger = world.signer("release", uses=("1.3.6.1.5.5.7.3.1",))
    with pytest.raises(BadChain, match="role"):
        _accept_manifest(world, _manifest(world, stranger))


def test_another_operator_s_signature_does_not_count(world: World) -> None:
    with pytest.raises(BadChain):
        _accept_manifest(world, _manifest(world, World().parties["release"]))


def test_a_revoked_signer_does_not_count(world: World) -> None:
    data = _manifest(world)
    trust = world.trust(revoked=frozenset({world.parties["release"].spki}))
    with pytest.raises(Revoked):
        gate.accept_manifest(
            "chat", data, trust, world.catalog(1, ("chat", 1, data)), Floors(), NOW
        )


def test_one_signer_twice_is_one_signer(world: World) -> None:
    strict = World(anchor=world.anchor, threshold=2)
    one = strict.parties["release"]
    again = replace_certificate(strict, one)
    data = _manifest(strict, one, again)
    with pytest.raises(BadSignature, match="1 of 2"):
        _accept_manifest(strict, data)
    with pytest.raises(BadSignature, match="1 of 2"):  # an old key and the one after it
        _accept_manifest(strict, _manifest(strict, one, strict.signer("release")))
    with pytest.raises(BadSignature, match=r"1 of 2 .* does not have this role"):
        _accept_manifest(strict, _manifest(strict, one, strict.parties["catalog"]))
    both = _manifest(strict, one, strict.signer("release", "bob"))
    assert _accept_manifest(strict, both).version == 1


def replace_certificate(world: World, party: Party) -> Party:
    """Another certificate of the same key."""
    from tests.fakes.pki import Wish, make

    return make(Wish("twin", uris=(uri("release"),)), world.anchor, key=party.key)


def test_a_wrong_signature_beside_a_right_one_does_no_harm(world: World) -> None:
    data = json.loads(_manifest(world, world.parties["release"], world.signer("release")))
    data["signatures"][1]["sig"] = data["signatures"][0]["sig"]
    assert _accept_manifest(world, json.dumps(data).encode()).version == 1


def test_an_envelope_without_signatures_is_refused(world: World) -> None:
    data = json.loads(_manifest(world))
    data["signatures"] = []
    with pytest.raises(BadDocument, match="no signature"):
        _accept_manifest(world, json.dumps(data).encode())


def test_a_document_of_another_type_is_refused_although_it_is_well_signed(world: World) -> None:
    payload = documents.catalog_payload(world.catalog(1))
    data = seal(documents.CATALOG_TYPE, payload, world.parties["release"])
    with pytest.raises(BadDocument, match="of type"):
        _accept_manifest(world, data)


def test_bytes_over_the_limit_are_refused_before_anything_is_parsed(world: World) -> None:
    with pytest.raises(TooLarge):
        _accept_manifest(world, b"[" * (1 << 20))


def test_an_older_catalog_is_a_rollback(world: World) -> None:
    floors = Floors().accepted("catalog", 5, START, NOW)
    data = _catalog(world, world.catalog(4))
    with pytest.raises(Rollback):
        gate.accept_catalog(data, world.trust(), floors, None, NOW)


def test_a_name_that_vanishes_from_the_catalog_is_a_rollback(world: World) -> None:
    before = world.catalog(4, ("chat", 1, b"x"), ("vision", 1, b"y"))
    floors = Floors().accepted("catalog", 4, START, NOW)
    data = _catalog(world, world.catalog(5, ("chat", 1, b"x")))
    with pytest.raises(Rollback, match="vision"):
        gate.accept_catalog(data, world.trust(), floors, before, NOW)


def test_an_expired_catalog_is_a_freeze(world: World) -> None:
    data = _catalog(world, world.catalog(4))
    later = Now(START + 9 * DAY, trusted=True)
    with pytest.raises(Freeze):
        gate.accept_catalog(data, world.trust(), Floors(), None, later)


def test_without_a_clock_only_strictly_newer_catalogs_are_accepted_and_it_is_said(
    world: World,
) -> None:
    floors = Floors().accepted("catalog", 4, START, NOW)
    same = _catalog(world, world.catalog(4))
    with pytest.raises(Rollback):
        gate.accept_catalog(same, world.trust(), floors, world.catalog(3), NO_CLOCK)
    newer = _catalog(world, world.catalog(5))
    accepted = gate.accept_catalog(newer, world.trust(), floors, None, NO_CLOCK)
    assert accepted.degraded


def test_a_clock_of_1970_stops_no_update(world: World) -> None:
    assert _accept_manifest(world, _manifest(world), now=NO_CLOCK).version == 1


def test_a_clock_of_2038_that_nobody_vouches_for_strands_no_device(world: World) -> None:
    far = datetime(2038, 1, 20, tzinfo=START.tzinfo)
    guess = effective(far, synchronised=False, floors=(START,))
    catalog = _catalog(world, world.catalog(5))
    assert gate.accept_catalog(catalog, world.trust(), Floors(), None, guess).degraded
    assert _accept_manifest(world, _manifest(world), now=guess).version == 1


def test_a_manifest_from_the_future_is_refused_by_a_trusted_clock(world: World) -> None:
    data = _manifest(world, issued_at="2026-06-01T00:00:00Z", expires="2026-07-01T00:00:00Z")
    with pytest.raises(Expired, match="after now"):
        _accept_manifest(world, data)


def test_a_certificate_that_expired_since_does_not_strand_the_device(world: World) -> None:
    brief = world.signer("release", end=START + 2 * DAY)
    data = _manifest(world, brief)
    assert _accept_manifest(world, data, now=Now(START + 5 * DAY, trusted=True)).version == 1


def test_a_certificate_that_was_not_valid_when_it_signed_is_refused(world: World) -> None:
    late = world.signer("release", start=START + 20 * DAY)
    with pytest.raises(Expired):
        _accept_manifest(world, _manifest(world, late))


def test_an_expired_catalog_signer_is_refused_by_a_trusted_clock(world: World) -> None:
    brief = world.signer("catalog", end=START + 1.5 * DAY)
    data = _catalog(world, world.catalog(4), brief)
    with pytest.raises(Expired):
        gate.accept_catalog(data, world.trust(), Floors(), None, NOW)


def test_a_manifest_that_the_catalog_does_not_list_is_mix_and_match(world: World) -> None:
    listed, other = _manifest(world), _manifest(world, version=2)
    catalog = world.catalog(1, ("chat", 1, listed))
    with pytest.raises(MixAndMatch):
        gate.accept_manifest("chat", other, world.trust(), catalog, Floors(), NOW)
    with pytest.raises(MixAndMatch):
        gate.accept_manifest("vision", listed, world.trust(), catalog, Floors(), NOW)
    wrong = world.catalog(1, ("chat", 7, listed))
    with pytest.raises(MixAndMatch, match="version"):
        gate.accept_manifest("chat", listed, world.trust(), wrong, Floors(), NOW)


def test_an_older_manifest_and_a_lower_release_counter_are_rollbacks(world: World) -> None:
    data = _manifest(world)
    with pytest.raises(Rollback):
        _accept_manifest(world, data, floors=Floors().accepted("manifest:chat", 2, START, NOW))
    with pytest.raises(Rollback, match="release counter"):
        _accept_manifest(world, data, floors=Floors().committed({"smollm2": 9}))


def test_older_content_under_a_new_version_and_the_same_counter_is_no_rollback(
    world: World,
) -> None:
    floors = Floors().accepted("manifest:chat", 4, START, NOW).committed({"smollm2": 3})
    data = _manifest(world, version=5)
    assert _accept_manifest(world, data, floors=floors, version=5).version == 5


def test_trust_walks_through_every_version_and_needs_both_thresholds(world: World) -> None:
    first, signer = world.trust(1), world.parties["trust"]
    second_world = World(anchor=world.anchor)
    second = second_world.trust(2)
    third = second_world.trust(3, expires=START + 999 * DAY)
    steps = [_trust(second, signer), _trust(third, second_world.parties["trust"])]
    assert gate.walk_trust(steps, first)[0].version == 3
    with pytest.raises(Rollback):
        gate.walk_trust([steps[1]], first)


def test_trust_of_new_anchors_must_be_signed_under_the_old_and_the_new_ones(world: World) -> None:
    new = World()
    following = new.trust(2)
    with pytest.raises(BadChain):
        gate.accept_trust(_trust(following, new.parties["trust"]), world.trust())
    with pytest.raises(BadChain):
        gate.accept_trust(_trust(following, world.parties["trust"]), world.trust())
    both = _trust(following, world.parties["trust"], new.parties["trust"])
    assert gate.accept_trust(both, world.trust()).anchors == (new.anchor.certificate,)


def test_trust_renews_with_certificates_that_expired_long_ago(world: World) -> None:
    old = world.signer("trust", end=START + DAY)
    following = world.trust(2, issued_at=START + 900 * DAY, expires=START + 1200 * DAY)
    assert gate.accept_trust(_trust(following, old), world.trust()).version == 2


def test_a_raised_threshold_of_the_next_trust_must_be_met_by_its_own_signatures(
    world: World,
) -> None:
    roles = {**world.trust().roles, "trust": Role(2, CODE_SIGNING, uri("trust"))}
    following = world.trust(2, roles=roles)
    with pytest.raises(BadSignature, match="1 of 2"):
        gate.accept_trust(_trust(following, world.parties["trust"]), world.trust())
    signed = _trust(following, world.parties["trust"], world.signer("trust", "bob"))
    assert gate.accept_trust(signed, world.trust()).roles["trust"].threshold == 2


def test_new_catalog_keys_undo_a_thief_s_fast_forward(world: World) -> None:
    floors = replace(Floors(), documents={"trust": 1, "catalog": 2**52})
    following = world.trust(2, revoked=frozenset({world.parties["catalog"].spki}))
    assert gate.keys_changed(world.trust(), following, "catalog")
    fresh = floors.without_catalog()
    data = _catalog(world, world.catalog(4), world.signer("catalog"))
    assert gate.accept_catalog(data, following, fresh, None, NOW).catalog.version == 4


def test_every_flipped_byte_of_a_signed_manifest_is_refused(world: World) -> None:
    data = _manifest(world)
    catalog = world.catalog(1, ("chat", 1, data))
    for at in range(len(data)):
        broken = data[:at] + bytes([data[at] ^ 0x04]) + data[at + 1 :]
        with pytest.raises((BadDocument, BadSignature, BadChain, MixAndMatch)):
            gate.accept_manifest("chat", broken, world.trust(), catalog, Floors(), NOW)


POLICY = {
    "kind": "policy", "name": "site", "version": "1", "release_counter": 1,
    "size": 10, "sha256": "cd" * 32, "full": ["file:objects/cd"],
}  # fmt: skip
MODEL = {**POLICY, "kind": "model", "name": "chat"}


@pytest.mark.parametrize(
    ("artifacts", "signers", "good"),
    [
        ([POLICY], ["policy"], True),
        ([POLICY], ["release"], False),
        ([MODEL], ["policy"], False),
        ([MODEL, POLICY], ["release"], False),
        ([MODEL, POLICY], ["policy"], False),
        ([MODEL, POLICY], ["release", "policy"], True),
        ([POLICY], ["catalog"], False),
    ],
)
def test_policies_take_the_policy_s_signers_and_all_else_the_release_s(
    world: World, artifacts: list[object], signers: list[str], good: bool
) -> None:
    data = _manifest(world, *(world.parties[name] for name in signers), artifacts=artifacts)
    if good:
        assert _accept_manifest(world, data).version == 1
    else:
        with pytest.raises(BadChain, match="role"):
            _accept_manifest(world, data)


def test_without_a_policy_role_in_trust_no_policy_is_taken(world: World) -> None:
    data = _manifest(world, world.parties["policy"], artifacts=[POLICY])
    trust = world.trust()
    roles = {name: role for name, role in trust.roles.items() if name != "policy"}
    catalog = world.catalog(1, ("chat", 1, data))
    with pytest.raises((BadChain, BadSignature)):
        gate.accept_manifest("chat", data, replace(trust, roles=roles), catalog, Floors(), NOW)
    both = _manifest(world, world.parties["policy"], world.parties["release"], artifacts=[POLICY])
    catalog = world.catalog(1, ("chat", 1, both))
    with pytest.raises(BadSignature, match="nobody is trusted"):
        gate.accept_manifest("chat", both, replace(trust, roles=roles), catalog, Floors(), NOW)


def test_a_revoked_policy_signer_does_not_count_beside_a_good_release(world: World) -> None:
    parties = (world.parties["release"], world.parties["policy"])
    data = _manifest(world, *parties, artifacts=[MODEL, POLICY])
    trust = world.trust(revoked=frozenset({world.parties["policy"].spki}))
    catalog = world.catalog(1, ("chat", 1, data))
    with pytest.raises(BadChain):
        gate.accept_manifest("chat", data, trust, catalog, Floors(), NOW)
