"""Certificates: the pinned profile, and each way to miss it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from tests.fakes.pki import START, Party, Wish, authority, make

from stoker_ota.core import chain
from stoker_ota.errors import BadChain, Revoked


def _verify(party: Party, *anchors: Party, revoked: tuple[str, ...] = ()) -> chain.Signer:
    return chain.verify(party.chain, [a.certificate for a in anchors], revoked)


def test_a_leaf_right_under_the_anchor_is_a_signer() -> None:
    anchor = authority()
    signer = _verify(make(Wish(uris=("urn:a",)), anchor), anchor)
    assert signer.uses == {chain.CODE_SIGNING}
    assert signer.uris == {"urn:a"}


def test_one_intermediate_may_stand_between_and_shortens_the_interval() -> None:
    anchor = authority()
    middle = make(Wish("middle", ca=True, end=START + timedelta(days=100)), anchor)
    signer = _verify(make(Wish(start=START + timedelta(days=2)), middle), anchor)
    assert signer.valid_from == START + timedelta(days=2)
    assert signer.valid_until == START + timedelta(days=100)


def test_two_intermediates_are_one_too_many() -> None:
    anchor = authority()
    upper = make(Wish("upper", ca=True), anchor)
    lower = make(Wish("lower", ca=True), upper)
    leaf = make(Wish(), lower)
    leaf.above = (lower.certificate, upper.certificate)
    with pytest.raises(BadChain, match="at most 2"):
        _verify(leaf, anchor)


def test_an_expired_chain_still_verifies_since_time_is_the_rules_business() -> None:
    anchor = authority()
    old = make(Wish(start=START, end=START + timedelta(days=1)), anchor)
    assert _verify(old, anchor).valid_until == START + timedelta(days=1)


def test_certificates_never_valid_together_make_no_chain() -> None:
    anchor = authority()
    middle = make(Wish("middle", ca=True, end=START + timedelta(days=1)), anchor)
    with pytest.raises(BadChain, match="never valid"):
        _verify(make(Wish(start=START + timedelta(days=2)), middle), anchor)


def test_the_second_of_two_anchors_serves_as_well() -> None:
    first, second = authority("one"), authority("two")
    assert _verify(make(Wish(), second), first, second)


def test_an_unknown_anchor_is_refused() -> None:
    with pytest.raises(BadChain):
        _verify(make(Wish(), authority("other")), authority())


def test_an_anchor_of_the_same_name_and_another_key_is_refused() -> None:
    with pytest.raises(BadChain):
        _verify(make(Wish(), authority("anchor")), authority("anchor"))


@pytest.mark.parametrize(
    "wish",
    [
        Wish(curve=ec.SECP384R1()),
        Wish(curve=ec.SECP256K1()),
        Wish(digest=hashes.SHA384()),
        Wish(digital_signature=False),
        Wish(ca=True),
        Wish(critical=b"\x05\x00"),
    ],
    ids=["p-384", "secp256k1", "sha-384", "no digital signature", "an authority", "critical"],
)
def test_a_leaf_outside_the_profile_is_refused(wish: Wish) -> None:
    anchor = authority()
    with pytest.raises(BadChain):
        _verify(make(wish, anchor), anchor)


def test_an_intermediate_on_another_curve_is_refused() -> None:
    anchor = authority()
    middle = make(Wish("middle", ca=True, curve=ec.SECP384R1()), anchor)
    with pytest.raises(BadChain):
        _verify(make(Wish(), middle), anchor)


def test_a_leaf_cannot_issue_a_leaf() -> None:
    anchor = authority()
    with pytest.raises(BadChain):
        _verify(make(Wish(), make(Wish("not an authority"), anchor)), anchor)


def test_a_foreign_certificate_in_the_chain_is_refused() -> None:
    anchor = authority()
    leaf = make(Wish(), anchor)
    leaf.above = (make(Wish("stranger", ca=True), authority("elsewhere")).certificate,)
    with pytest.raises(BadChain):
        _verify(leaf, anchor)


@pytest.mark.parametrize("which", ["leaf", "middle", "anchor"])
def test_a_revoked_key_anywhere_in_the_path_is_refused(which: str) -> None:
    anchor = authority()
    middle = make(Wish("middle", ca=True), anchor)
    leaf = make(Wish(), middle)
    banned = {"leaf": leaf, "middle": middle, "anchor": anchor}[which].spki
    with pytest.raises(Revoked):
        _verify(leaf, anchor, revoked=(banned,))


def test_a_certificate_has_one_form_only() -> None:
    """Its signature's "unused bits" are outside of everything that is signed."""
    anchor = authority()
    for _ in range(64):  # until a signature ends in a bit that may be called unused
        (der,) = make(Wish(), anchor).chain
        found = chain.load(der)
        if found.signature[-1] % 2 == 0:
            break
    at = len(der) - len(found.signature) - 1
    assert der[at] == 0
    other = der[:at] + b"\x01" + der[at + 1 :]
    assert x509.load_der_x509_certificate(other).signature == found.signature
    with pytest.raises(BadChain, match="second form"):
        chain.load(other)


def test_a_certificate_whose_name_is_nonsense_is_refused_when_it_is_read() -> None:
    """The parser looks at names late: behind everything that expects its errors."""
    (der,) = make(Wish("signer"), authority()).chain
    at = der.rindex(b"signer") - 2  # the text's type
    assert der[at] == 0x0C
    with pytest.raises(BadChain):
        chain.load(der[:at] + b"\x1f" + der[at + 1 :])


@pytest.mark.parametrize("der", [b"", b"\x30", b"\x30\x82\xff\xff" + bytes(100), bytes(200)])
def test_bytes_that_are_no_certificate_are_refused(der: bytes) -> None:
    with pytest.raises(BadChain):
        chain.verify([der], [authority().certificate])
