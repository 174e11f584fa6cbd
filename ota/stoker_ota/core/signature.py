"""ECDSA P-256 over SHA-256, with signatures of exactly 64 bytes: r then s, big endian.

The one form that documents carry (IEEE P1363, as in JWS ES256). DER is read only where
tools bring it (openssl, HSMs) and strictly: one encoding for one signature.
"""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

from stoker_ota.core.fields import SIGNATURE_BYTES
from stoker_ota.errors import BadSignature

_HALF: Final = SIGNATURE_BYTES // 2
_INTEGER: Final = 0x02
_SEQUENCE: Final = 0x30


def holds(key: ec.EllipticCurvePublicKey, signature: bytes, message: bytes) -> bool:
    """Whether ``signature`` (r and s) is of ``message`` by ``key``; never raises for bad ones."""
    if len(signature) != SIGNATURE_BYTES or not isinstance(key.curve, ec.SECP256R1):
        return False
    r = int.from_bytes(signature[:_HALF], "big")
    s = int.from_bytes(signature[_HALF:], "big")
    if r == 0 or s == 0:
        return False
    try:
        key.verify(encode_dss_signature(r, s), message, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def sign(key: ec.EllipticCurvePrivateKey, message: bytes) -> bytes:
    """r and s of a signature with a nonce from RFC 6979: same inputs, same bytes."""
    if not isinstance(key.curve, ec.SECP256R1):
        raise BadSignature("cannot sign: the key is not on P-256")
    der = key.sign(message, ec.ECDSA(hashes.SHA256(), deterministic_signing=True))
    r, s = decode_dss_signature(der)
    return r.to_bytes(_HALF, "big") + s.to_bytes(_HALF, "big")


def from_der(der: bytes) -> bytes:
    """A DER SEQUENCE of two INTEGERs as r and s. Raises BadSignature unless it is minimal DER."""
    if len(der) < 2 or der[0] != _SEQUENCE or der[1] != len(der) - 2 or der[1] > 0x7F:
        raise BadSignature("cannot read signature: it is not one DER sequence")
    r, rest = _integer(der[2:])
    s, rest = _integer(rest)
    if rest:
        raise BadSignature("cannot read signature: bytes follow the two integers")
    return r + s


def _integer(data: bytes) -> tuple[bytes, bytes]:
    if len(data) < 3 or data[0] != _INTEGER or not 1 <= data[1] <= _HALF + 1:
        raise BadSignature("cannot read signature: an integer is missing or of a wrong length")
    body, rest = data[2 : 2 + data[1]], data[2 + data[1] :]
    if len(body) != data[1]:
        raise BadSignature("cannot read signature: an integer is cut off")
    if body[0] & 0x80 or (len(body) > 1 and body[0] == 0 and not body[1] & 0x80):
        raise BadSignature("cannot read signature: an integer is negative or padded")
    value = int.from_bytes(body, "big")
    if value >> (8 * _HALF):
        raise BadSignature("cannot read signature: an integer is too large for P-256")
    return value.to_bytes(_HALF, "big"), rest
