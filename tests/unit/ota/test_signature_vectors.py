"""ECDSA P-256 against Wycheproof's vectors, as r‖s and through the strict DER reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_der_public_key

from stoker_ota.core import envelope, signature
from stoker_ota.errors import BadSignature

SHARED = Path(__file__).resolve().parents[4] / "shared" / "vectors" / "wycheproof"
P1363 = SHARED / "ecdsa_secp256r1_sha256_p1363_test.json"
DER = SHARED / "ecdsa_secp256r1_sha256_test.json"


def _cases(path: Path) -> list[tuple[ec.EllipticCurvePublicKey, dict[str, Any]]]:
    if not path.exists():
        pytest.skip(f"the shared test vectors are not beside this checkout: {path}")
    groups = json.loads(path.read_text())["testGroups"]
    out = []
    for group in groups:
        key = load_der_public_key(bytes.fromhex(group["publicKeyDer"]))
        assert isinstance(key, ec.EllipticCurvePublicKey)
        out += [(key, test) for test in group["tests"]]
    return out


def test_every_p1363_vector_is_judged_as_published() -> None:
    cases = _cases(P1363)
    wrong = [
        test["tcId"]
        for key, test in cases
        if signature.holds(key, bytes.fromhex(test["sig"]), bytes.fromhex(test["msg"]))
        != (test["result"] == "valid")
    ]
    assert len(cases) == 262
    assert wrong == []


def _holds_der(key: ec.EllipticCurvePublicKey, der: bytes, message: bytes) -> bool:
    try:
        return signature.holds(key, signature.from_der(der), message)
    except BadSignature:
        return False


def test_every_der_vector_is_judged_as_published() -> None:
    cases = _cases(DER)
    wrong = [
        test["tcId"]
        for key, test in cases
        if _holds_der(key, bytes.fromhex(test["sig"]), bytes.fromhex(test["msg"]))
        != (test["result"] == "valid")
    ]
    assert len(cases) == 484
    assert wrong == []


def test_the_encoding_before_signing_is_dsse_s_own_example() -> None:
    # protocol.md of DSSE: "PAE" of the type http://example.com/HelloWorld and "hello world"
    assert envelope.pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_the_same_message_and_key_give_the_same_signature() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    assert signature.sign(key, b"message") == signature.sign(key, b"message")


def test_a_key_of_another_curve_neither_signs_nor_verifies() -> None:
    other = ec.generate_private_key(ec.SECP384R1())
    with pytest.raises(BadSignature):
        signature.sign(other, b"message")
    assert not signature.holds(other.public_key(), bytes(64), b"message")
