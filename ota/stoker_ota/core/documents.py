"""The trust and catalog documents as values: TUF's root, and its timestamp and snapshot in one.

Parsing is strict and pure; whether a document may be accepted is ``rules`` and ``gate``.
Payloads are JSON; ``manifest.py`` has the third document.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from stoker_ota.core import chain, clock, fields, strict_json
from stoker_ota.core.fields import MAX_VERSION, moment, sha256
from stoker_ota.core.rules import Entry
from stoker_ota.getters import Table

TRUST_TYPE: Final = "application/vnd.stoker.trust.v1+json"
CATALOG_TYPE: Final = "application/vnd.stoker.catalog.v1+json"
MAX_TRUST_BYTES: Final = 64 << 10
MAX_CATALOG_BYTES: Final = 1 << 20
MAX_ANCHORS: Final = 8
MAX_ENTRIES: Final = 1024
ROLES: Final = ("trust", "release", "catalog", "fleet", "policy")


@dataclass(frozen=True, slots=True)
class Role:
    """What a signer's leaf must say to count, and how many distinct signers it takes."""

    threshold: int
    use: str  # OID that must be among its extended key usages
    uri: str = ""  # that must be among its subject alternative names; "" = any

    def admits(self, signer: chain.Signer) -> bool:
        return self.use in signer.uses and (not self.uri or self.uri in signer.uris)


@dataclass(frozen=True, slots=True)
class Trust:
    version: int
    issued_at: datetime
    expires: datetime
    anchors: tuple[x509.Certificate, ...]
    roles: Mapping[str, Role]
    revoked: frozenset[str]  # hex SHA-256 of subject public key infos


@dataclass(frozen=True, slots=True)
class Catalog:
    version: int
    issued_at: datetime
    expires: datetime
    manifests: Mapping[str, Entry]  # by deployment id


def parse_trust(payload: bytes) -> Trust:
    """Raises BadDocument, BadChain, TooLarge."""
    table = fields.open_payload(payload, "trust", MAX_TRUST_BYTES)
    version, issued, expires = _head(table)
    anchors = tuple(
        chain.load(strict_json.unbase64(text, "trust: anchors"))
        for text in table.texts("anchors", max_items=MAX_ANCHORS)
    )
    if not anchors:
        table.refuse("anchors", "is empty")
    roles_table = table.table("roles")
    roles = {name: _role(roles_table.table(name)) for name in roles_table.keys()}  # noqa: SIM118
    for name in roles:
        if name not in ROLES:
            roles_table.refuse(name, f"is not one of {', '.join(ROLES)}")
    for name in ("trust", "release", "catalog"):
        if name not in roles:
            roles_table.refuse(name, "missing")
    revoked = table.texts("revoked", (), max_items=MAX_ENTRIES)
    for index, item in enumerate(revoked):
        if not fields.SHA256.fullmatch(item):
            table.refuse(f"revoked[{index}]", "is no SHA-256")
    table.finish()
    return Trust(version, issued, expires, anchors, roles, frozenset(revoked))


def trust_payload(trust: Trust) -> bytes:
    """The document's bytes: same value, same bytes."""
    return strict_json.dumps(
        {
            "schema": 1,
            "version": trust.version,
            "issued_at": clock.write(trust.issued_at),
            "expires": clock.write(trust.expires),
            "anchors": [
                base64.b64encode(anchor.public_bytes(Encoding.DER)).decode()
                for anchor in trust.anchors
            ],
            "roles": {
                name: {"threshold": role.threshold, "use": role.use, "uri": role.uri}
                for name, role in trust.roles.items()
            },
            "revoked": sorted(trust.revoked),
        }
    )


def parse_catalog(payload: bytes) -> Catalog:
    """Raises BadDocument, TooLarge."""
    table = fields.open_payload(payload, "catalog", MAX_CATALOG_BYTES)
    version, issued, expires = _head(table)
    listing = table.table("manifests")
    names = listing.keys()
    if len(names) > MAX_ENTRIES:
        table.refuse("manifests", f"more than {MAX_ENTRIES} entries")
    manifests: dict[str, Entry] = {}
    for name in names:
        if not fields.NAME.fullmatch(name):
            listing.refuse(name[:40], "is no name")
        entry = listing.table(name)
        manifests[name] = Entry(
            version=entry.whole("version", low=1, high=MAX_VERSION),
            sha256=sha256(entry, "sha256"),
            length=entry.whole("length", low=1, high=MAX_CATALOG_BYTES),
        )
        entry.finish()
    listing.finish()
    table.finish()
    return Catalog(version, issued, expires, manifests)


def catalog_payload(catalog: Catalog) -> bytes:
    return strict_json.dumps(
        {
            "schema": 1,
            "version": catalog.version,
            "issued_at": clock.write(catalog.issued_at),
            "expires": clock.write(catalog.expires),
            "manifests": {
                name: {"version": item.version, "sha256": item.sha256, "length": item.length}
                for name, item in catalog.manifests.items()
            },
        }
    )


def _head(table: Table) -> tuple[int, datetime, datetime]:
    version = table.whole("version", low=1, high=MAX_VERSION)
    issued, expires = moment(table, "issued_at"), moment(table, "expires")
    if expires <= issued:
        table.refuse("expires", "is not after issued_at")
    return version, issued, expires


def _role(table: Table) -> Role:
    role = Role(
        threshold=table.whole("threshold", low=1, high=16),
        use=table.text("use", chain.CODE_SIGNING, max_bytes=64),
        uri=table.text("uri", "", max_bytes=256),
    )
    table.finish()
    return role
