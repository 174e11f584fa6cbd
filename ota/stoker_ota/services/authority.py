"""An operator's keys and certificates: two anchors, intermediates, a signer for each role.

Everything is made under the profile that devices pin (``core.chain``). Keys never leave
here unencrypted; where the bytes go is the caller's. The clock and randomness are given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from stoker_ota.core import clock, documents, envelope, signature
from stoker_ota.core.documents import Role, Trust
from stoker_ota.errors import BadChain, InvalidRequest

ANCHORS: Final = ("anchor-1", "anchor-2")
"""Two from the first day: the second one is there when the first is lost or expires."""
MAX_THRESHOLD: Final = 7
"""So that two roles' signers, or one role's and a key that takes over, fit into an envelope."""
CLOCK_SKEW: Final = timedelta(days=1)
"""Certificates are valid from a day ago: a device's clock may be behind."""

MakeKey = Callable[[], ec.EllipticCurvePrivateKey]


@dataclass(frozen=True, slots=True)
class Holder:
    """A key with its certificate and, but for anchors, those above it up to the anchor's."""

    name: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    above: tuple[x509.Certificate, ...] = ()

    @property
    def chain(self) -> tuple[bytes, ...]:
        """DER, the leaf first, without the anchor: what goes beside a signature."""
        return tuple(item.public_bytes(Encoding.DER) for item in (self.certificate, *self.above))


@dataclass(frozen=True, slots=True)
class Terms:
    """How long certificates are valid, in days."""

    anchor_days: int = 20 * 365
    intermediate_days: int = 10 * 365
    signer_days: int = 2 * 365


def found(
    operator: str, now: datetime, terms: Terms, make_key: MakeKey, threshold: int = 1
) -> dict[str, Holder]:
    """All holders by name: anchors, an intermediate under each, ``threshold`` signers for each
    role. InvalidRequest for a threshold outside 1..MAX_THRESHOLD.

    Signers stand under the first anchor; the second one's are for the day it is needed.
    """
    if not 1 <= threshold <= MAX_THRESHOLD:
        raise InvalidRequest(
            f"cannot make keys: threshold {threshold} is outside 1..{MAX_THRESHOLD}"
        )
    holders: dict[str, Holder] = {}
    for number, anchor_name in enumerate(ANCHORS, 1):
        anchor = issue(anchor_name, operator, None, now, terms.anchor_days, make_key(), ca=True)
        middle = issue(
            f"intermediate-{number}", operator, anchor, now, terms.intermediate_days, make_key(),
            ca=True,
        )  # fmt: skip
        holders |= {anchor.name: anchor, middle.name: middle}
    for role in documents.ROLES:
        middle = holders["intermediate-1"]
        for name in signer_names(role)[:threshold]:
            holders[name] = issue(
                name, operator, middle, now, terms.signer_days, make_key(), role=role
            )
    return holders


def signer_names(role: str) -> tuple[str, ...]:
    """What the signers of a role are called: release, release-2, release-3, …"""
    others = (f"{role}-{number}" for number in range(2, MAX_THRESHOLD + 1))
    return (role, *others)


def issue(
    name: str,
    operator: str,
    issuer: Holder | None,
    now: datetime,
    days: int,
    key: ec.EllipticCurvePrivateKey,
    *,
    ca: bool = False,
    role: str = "",
) -> Holder:
    """A certificate for ``key``; without an issuer it signs itself."""
    if not 1 <= days <= clock.MAX_DAYS:
        raise InvalidRequest(f"cannot issue {name}: {days} days are outside 1..{clock.MAX_DAYS}")
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, operator),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )
    signing = key if issuer is None else issuer.key
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(clock.later(now, days))
        .add_extension(x509.BasicConstraints(ca, _path_length(issuer) if ca else None), True)
        .add_extension(_usage(ca), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), False
        )
    )
    if not ca:
        builder = builder.add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), False
        )
    if role:
        names = [x509.UniformResourceIdentifier(role_uri(role))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
    certificate = builder.sign(signing, hashes.SHA256())
    return Holder(name, key, certificate, _above(issuer))


def first_trust(
    holders: Mapping[str, Holder], now: datetime, days: int, threshold: int = 1
) -> Trust:
    """Version 1: both anchors, every role held by its signer's URI."""
    use = ExtendedKeyUsageOID.CODE_SIGNING.dotted_string
    roles = {role: Role(threshold, use, role_uri(role)) for role in documents.ROLES}
    anchors = tuple(holders[name].certificate for name in ANCHORS)
    return Trust(1, now, clock.later(now, days), anchors, roles, frozenset())


def sign(kind: str, payload: bytes, signers: tuple[Holder, ...]) -> bytes:
    """The envelope of ``payload`` with a signature of each: same inputs, same bytes."""
    message = envelope.pae(kind, payload)
    made = tuple(
        envelope.Signature(signature.sign(holder.key, message), holder.chain) for holder in signers
    )
    return envelope.encode(envelope.Envelope(kind, payload, made))


def key_pem(holder: Holder, passphrase: bytes) -> bytes:
    """PKCS #8, encrypted. InvalidRequest without a passphrase: no key is written in the clear."""
    if not passphrase:
        raise InvalidRequest("cannot write a key: the passphrase is empty")
    return holder.key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(passphrase)
    )


def chain_pem(holder: Holder) -> bytes:
    """The certificate and those above it, as PEM, the leaf first."""
    return b"".join(item.public_bytes(Encoding.PEM) for item in (holder.certificate, *holder.above))


def load(name: str, key: bytes, chain: bytes, passphrase: bytes) -> Holder:
    """A holder from what ``key_pem`` and ``chain_pem`` wrote. InvalidRequest, BadChain."""
    try:
        private = load_pem_private_key(key, passphrase)
    except (ValueError, TypeError) as error:
        raise InvalidRequest(
            f"cannot open the key of {name}: the passphrase is wrong or it is no key"
        ) from error
    try:
        certificate, *above = x509.load_pem_x509_certificates(chain)
    except ValueError as error:
        raise BadChain(
            f"cannot read the certificate of {name}: it is no certificate in PEM"
        ) from error
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise BadChain(f"cannot use the key of {name}: it is not on P-256")
    if private.public_key() != certificate.public_key():
        raise BadChain(f"cannot use the key of {name}: the certificate is of another one")
    return Holder(name, private, certificate, tuple(above))


def role_uri(role: str) -> str:
    """What a role's signer carries among its alternative names."""
    return f"urn:stoker:role:{role}"


def _above(issuer: Holder | None) -> tuple[x509.Certificate, ...]:
    """An anchor is pinned on devices and needs no carrying."""
    if issuer is None or issuer.certificate.subject == issuer.certificate.issuer:
        return ()
    return (issuer.certificate, *issuer.above)


def _path_length(issuer: Holder | None) -> int:
    return 1 if issuer is None else 0


def _usage(ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not ca, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, key_cert_sign=ca, crl_sign=ca,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip
