"""The names in a catalog that nobody has verified yet, to know which files to fetch. Pure.

Nothing is believed because of it: what was fetched is judged by ``gate`` from the signed bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stoker_ota.core import envelope, fields, strict_json
from stoker_ota.errors import BadDocument, OtaError
from stoker_ota.getters import Table

MAX_CATALOG_BYTES: Final = 2 << 20
MAX_TRUST_BYTES: Final = 128 << 10
MAX_MANIFEST_BYTES: Final = 512 << 10
MAX_NAMES: Final = 1024
MAX_STEPS: Final = 1024
"""Trust documents walked at one time, as ``rules.MAX_TRUST_STEPS``."""


@dataclass(frozen=True, slots=True)
class Named:
    """A manifest: its deployment, and the hash and length of its signed bytes."""

    name: str
    sha256: str
    length: int


def of_catalog(data: bytes) -> tuple[Named, ...]:
    """BadDocument, TooLarge."""
    payload = envelope.parse(data, max_bytes=MAX_CATALOG_BYTES).payload
    value = strict_json.loads(payload, max_bytes=MAX_CATALOG_BYTES, what="catalog")
    listing = Table(value, _fail).table("manifests")
    names = listing.keys()
    if len(names) > MAX_NAMES:
        listing.refuse("", f"more than {MAX_NAMES} entries")
    found = []
    for name in names:
        if not fields.NAME.fullmatch(name) or ".." in name:
            listing.refuse(name[:40], "is no name")
        entry = listing.table(name)
        length = entry.whole("length", low=1, high=MAX_CATALOG_BYTES)
        found.append(Named(name, fields.sha256(entry, "sha256"), length))
    return tuple(found)


def version_of(data: bytes) -> int:
    """What a document says of its own version. BadDocument, TooLarge."""
    payload = envelope.parse(data, max_bytes=MAX_CATALOG_BYTES).payload
    value = strict_json.loads(payload, max_bytes=MAX_CATALOG_BYTES, what="document")
    return Table(value, _fail).whole("version", low=1, high=fields.MAX_VERSION)


def _fail(path: str, reason: str) -> OtaError:
    return BadDocument(f"cannot read catalog: {path}: {reason}", details={"path": path})
