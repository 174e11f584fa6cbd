"""Whether a certificate leads to a pinned anchor under our profile, and for how long.

Profile: leaf, at most one intermediate, anchor; P-256 and SHA-256 on every certificate;
the leaf signs (digitalSignature) and is no CA. The path itself is RFC 5280's, checked by
``cryptography.x509.verification``. The moment is not judged here: a chain is checked at
a time at which all of it was valid, and the interval goes to the rules, which know the
clock's trustworthiness and that trust renewal must always work.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import verification

from stoker_ota.errors import BadChain, Revoked

CODE_SIGNING: Final = "1.3.6.1.5.5.7.3.3"
MAX_INTERMEDIATES: Final = 1
_ECDSA_WITH_SHA256: Final = bytes.fromhex("300a06082a8648ce3d040302")  # RFC 5758, as DER
_Kind = TypeVar("_Kind", bound=x509.ExtensionType)


@dataclass(frozen=True, slots=True)
class Signer:
    """A leaf that leads to an anchor. ``spki`` tells keys apart (hex SHA-256)."""

    key: ec.EllipticCurvePublicKey
    spki: str
    subject: str
    valid_from: datetime  # UTC; of the whole chain
    valid_until: datetime
    uses: frozenset[str]  # dotted OIDs of the leaf's extended key usage
    uris: frozenset[str]  # of the leaf's subject alternative name


def load(der: bytes) -> x509.Certificate:
    """One certificate on P-256 with SHA-256. Raises BadChain."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        key = certificate.public_key()
        digest = certificate.signature_hash_algorithm
        # Read now what is only read when it is asked for: it may be nonsense, too.
        _ = (
            certificate.subject,
            certificate.issuer,
            certificate.extensions,
            _interval([certificate]),
        )
    except Exception as error:  # the parser has many ways to say no, some of them undocumented
        raise BadChain(f"cannot read certificate: {error}") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise BadChain("cannot use certificate: its key is not on P-256")
    if not isinstance(digest, hashes.SHA256):
        raise BadChain("cannot use certificate: it is not signed with SHA-256")
    if der != _as_signed(certificate):
        raise BadChain("cannot use certificate: it has a second form of the bytes that were signed")
    return certificate


def _as_signed(certificate: x509.Certificate) -> bytes:
    """The one DER form (X.690 8.6 and 11.2). The parser also takes a signature whose last
    bits it is told to leave out, which no signature covers.
    """
    body = certificate.tbs_certificate_bytes + _ECDSA_WITH_SHA256
    return _der(0x30, body + _der(0x03, b"\x00" + certificate.signature))


def _der(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 0x80:
        return bytes((tag, length)) + content
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(size))) + size + content


def spki_hash(certificate: x509.Certificate) -> str:
    """Hex SHA-256 of the subject's public key info: what revocation names."""
    der = certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(der).hexdigest()


def verify(
    chain: Sequence[bytes], anchors: Sequence[x509.Certificate], revoked: Iterable[str] = ()
) -> Signer:
    """The signer of ``chain`` (DER, leaf first). Raises BadChain, Revoked."""
    if not 1 <= len(chain) <= 1 + MAX_INTERMEDIATES:
        raise BadChain(f"cannot verify chain: it has {len(chain)} certificates, at most 2 may be")
    leaf, *rest = [load(der) for der in chain]
    reason = "no anchor is pinned"
    for anchor in anchors:
        try:
            path = _path(leaf, rest, anchor)
        except BadChain as error:
            reason = error.message
            continue
        banned = set(revoked)
        for certificate in path:
            if spki_hash(certificate) in banned:
                raise Revoked(f"cannot verify chain: the key of {_name(certificate)} is revoked")
        _check_leaf(leaf)
        return _signer(leaf, path)
    raise BadChain(f"cannot verify chain of {_name(leaf)}: {reason}")


def _path(
    leaf: x509.Certificate, rest: Sequence[x509.Certificate], anchor: x509.Certificate
) -> list[x509.Certificate]:
    start, end = _interval([leaf, *rest, anchor])
    if start > end:
        raise BadChain("its certificates were never valid at one time")
    verifier = (
        verification.PolicyBuilder()
        .store(verification.Store([anchor]))
        .time(start.replace(tzinfo=None))
        .max_chain_depth(MAX_INTERMEDIATES)
        .extension_policies(
            ca_policy=verification.ExtensionPolicy.webpki_defaults_ca(),
            ee_policy=verification.ExtensionPolicy.permit_all(),
        )
        .build_client_verifier()
    )
    try:
        path = list(verifier.verify(leaf, list(rest)).chain)
    except (verification.VerificationError, ValueError) as error:
        # The library's words for "no candidate has a reason of its own" tell nothing.
        why = "" if "candidates exhausted" in str(error) else f" ({error})"
        raise BadChain(f"it does not lead to an anchor that is pinned{why}") from error
    if len(path) != len(rest) + 2:
        raise BadChain("a certificate is not part of its path")
    return path


def _check_leaf(leaf: x509.Certificate) -> None:
    usage = _extension(leaf, x509.KeyUsage)
    if usage is None or not usage.digital_signature:
        raise BadChain(f"cannot use {_name(leaf)}: it is not for digital signatures")
    constraints = _extension(leaf, x509.BasicConstraints)
    if constraints is not None and constraints.ca:
        raise BadChain(f"cannot use {_name(leaf)}: it is an authority, no signer")


def _signer(leaf: x509.Certificate, path: Sequence[x509.Certificate]) -> Signer:
    uses = _extension(leaf, x509.ExtendedKeyUsage)
    names = _extension(leaf, x509.SubjectAlternativeName)
    start, end = _interval(path)
    key = leaf.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)  # ``load`` refused all others
    return Signer(
        key=key,
        spki=spki_hash(leaf),
        subject=_name(leaf),
        valid_from=start,
        valid_until=end,
        uses=frozenset(oid.dotted_string for oid in uses or ()),
        uris=frozenset(
            names.get_values_for_type(x509.UniformResourceIdentifier) if names is not None else ()
        ),
    )


def _interval(path: Sequence[x509.Certificate]) -> tuple[datetime, datetime]:
    start = max(certificate.not_valid_before_utc for certificate in path)
    return start, min(certificate.not_valid_after_utc for certificate in path)


def _extension(certificate: x509.Certificate, kind: type[_Kind]) -> _Kind | None:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
        raise BadChain(f"cannot read certificate: {error}") from error


def _name(certificate: x509.Certificate) -> str:
    try:
        return certificate.subject.rfc4514_string()[:200] or "a certificate without a name"
    except ValueError:
        return "a certificate with an unreadable name"
