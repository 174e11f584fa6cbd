"""Keys, certificates and signed documents for tests, right ones and wrong ones.

Deliberately not the authoring tool's own code: it must be able to make what that refuses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from stoker_ota.core import documents, envelope, signature
from stoker_ota.core.documents import Catalog, Role, Trust
from stoker_ota.core.rules import Entry

CODE_SIGNING = "1.3.6.1.5.5.7.3.3"
START = datetime(2026, 1, 1, tzinfo=UTC)
Key = ec.EllipticCurvePrivateKey


@dataclass
class Party:
    """A key with its certificate, and the certificates above it but the anchor."""

    key: Key
    certificate: x509.Certificate
    above: tuple[x509.Certificate, ...] = ()

    @property
    def chain(self) -> tuple[bytes, ...]:
        return tuple(c.public_bytes(Encoding.DER) for c in (self.certificate, *self.above))

    @property
    def spki(self) -> str:
        public = self.certificate.public_key().public_bytes(
            Encoding.DER, PublicFormat.SubjectPublicKeyInfo
        )
        return hashlib.sha256(public).hexdigest()


@dataclass
class Wish:
    """What a certificate shall say; the defaults make a good leaf."""

    name: str = "signer"
    ca: bool = False
    curve: ec.EllipticCurve = field(default_factory=ec.SECP256R1)
    start: datetime = START
    end: datetime = START + timedelta(days=365)
    uses: Sequence[str] = (CODE_SIGNING,)
    uris: Sequence[str] = ()
    digital_signature: bool = True
    digest: Any = field(default_factory=hashes.SHA256)
    path_length: int | None = None
    critical: bytes | None = None  # an extension nobody knows


def make(wish: Wish, issuer: Party | None = None, key: Key | None = None) -> Party:
    """A certificate as wished, signed by ``issuer`` or by itself."""
    key = key or ec.generate_private_key(wish.curve)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, wish.name)])
    parent = issuer.certificate.subject if issuer else name
    signing = issuer.key if issuer else key
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(parent)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(wish.start)
        .not_valid_after(wish.end)
        .add_extension(x509.BasicConstraints(wish.ca, wish.path_length), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=wish.digital_signature,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=wish.ca,
                crl_sign=wish.ca,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()),
            critical=False,
        )
    )
    builder = _named(builder, wish)
    certificate = builder.sign(signing, wish.digest)
    above = (
        ()
        if issuer is None or issuer.certificate.issuer == issuer.certificate.subject
        else (issuer.certificate,)
    )
    return Party(key, certificate, above)


def _named(builder: x509.CertificateBuilder, wish: Wish) -> x509.CertificateBuilder:
    if wish.uses and not wish.ca:
        oids = [x509.ObjectIdentifier(use) for use in wish.uses]
        builder = builder.add_extension(x509.ExtendedKeyUsage(oids), critical=False)
    if wish.uris:
        names = [x509.UniformResourceIdentifier(uri) for uri in wish.uris]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    if wish.critical is not None:
        unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4.5"), wish.critical)
        builder = builder.add_extension(unknown, critical=True)
    return builder


def authority(name: str = "anchor", **wishes: object) -> Party:
    wish = Wish(name=name, ca=True, end=START + timedelta(days=3650), **wishes)  # type: ignore[arg-type]
    return make(wish)


def seal(kind: str, payload: bytes, *parties: Party) -> bytes:
    """The envelope of ``payload`` with a signature of each party."""
    message = envelope.pae(kind, payload)
    signatures = tuple(
        envelope.Signature(signature.sign(party.key, message), party.chain) for party in parties
    )
    return envelope.encode(envelope.Envelope(kind, payload, signatures))


@dataclass
class World:
    """An operator: an anchor, one signer for each role, version 1 of trust."""

    anchor: Party = field(default_factory=authority)
    parties: dict[str, Party] = field(default_factory=dict)
    threshold: int = 1

    def __post_init__(self) -> None:
        for role in documents.ROLES:
            self.parties[role] = self.signer(role)

    def signer(self, role: str, name: str = "", **wishes: object) -> Party:
        wish = Wish(name=name or f"{role} signer", uris=(uri(role),), **wishes)  # type: ignore[arg-type]
        return make(wish, self.anchor)

    def trust(self, version: int = 1, **changes: object) -> Trust:
        roles: Mapping[str, Role] = {
            role: Role(self.threshold, CODE_SIGNING, uri(role)) for role in documents.ROLES
        }
        values: dict[str, object] = {
            "issued_at": START, "expires": START + timedelta(days=365),
            "anchors": (self.anchor.certificate,), "roles": roles, "revoked": frozenset(),
            **changes,
        }  # fmt: skip
        return Trust(version, **values)  # type: ignore[arg-type]

    def catalog(self, version: int, *listed: tuple[str, int, bytes], **changes: object) -> Catalog:
        entries = {
            name: Entry(number, hashlib.sha256(data).hexdigest(), len(data))
            for name, number, data in listed
        }
        values: dict[str, object] = {
            "issued_at": START + timedelta(days=1), "expires": START + timedelta(days=8), **changes
        }  # fmt: skip
        return Catalog(version, manifests=entries, **values)  # type: ignore[arg-type]


def uri(role: str) -> str:
    return f"urn:stoker:role:{role}"
