"""What a device takes in from a bundle: newer trust, the catalog, and one manifest to install.

Everything goes through ``core.gate``; what was accepted is kept in the store, so that it is
never accepted in an older version again. Nothing is fetched or installed here. Only this
module and the gate need cryptography.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from stoker_ota.core import bundle, documents, envelope, gate, rules
from stoker_ota.core.clock import Now
from stoker_ota.core.documents import Catalog, Trust
from stoker_ota.core.floors import Floors
from stoker_ota.core.manifest import MAX_MANIFEST_BYTES, Manifest
from stoker_ota.errors import FileUnreadable, InvalidRequest, OtaError
from stoker_ota.services.store import Store
from stoker_ota.values.deployment import Offer

TRUST: Final = "trust"
ORIGIN: Final = "trust-origin"  # the operator's first document, as it was when trust began
CATALOG: Final = "catalog"
_TWICE: Final = 2  # an envelope's share over its payload: base64 and certificates


class Folder(Protocol):
    """A bundle's files by name."""

    def read(self, name: str, max_bytes: int) -> bytes | None:
        """None when there is no such file. FileUnreadable, TooLarge."""
        ...


@dataclass(frozen=True, slots=True)
class Listed:
    """One deployment as a catalog lists it; ``refusal`` = why this device does not take it."""

    deployment: str
    version: int
    manifest: Manifest | None = None
    document: bytes = b""
    refusal: OtaError | None = None

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.document).hexdigest() if self.document else ""


@dataclass(frozen=True, slots=True)
class Judged:
    """A bundle that was accepted. ``degraded``: by versions alone, the clock is not trusted."""

    trust: Trust
    catalog: Catalog
    degraded: bool
    listed: Mapping[str, Listed]


class Intake:
    """``first_trust`` is the document that the operator installed on this device."""

    def __init__(self, store: Store, first_trust: bytes) -> None:
        self._store, self._first = store, first_trust

    def inspect(self, folder: Folder, now: Now) -> Judged:
        """What ``accept`` would say; nothing is kept. Raises what the gate raises."""
        trust, floors = self._trust()
        return self._judge(folder, trust, floors, now)[0]

    def accept(self, folder: Folder, now: Now) -> Judged:
        """Judge a bundle and remember that it was accepted: trust first, then the catalog."""
        trust, floors = self._trust()
        self._begin()
        judged, steps = self._judge(folder, trust, floors, now)
        if steps:
            self._store.save_document(TRUST, steps[-1])
            if gate.keys_changed(trust, judged.trust, "catalog"):
                floors = floors.without_catalog()
        floors = floors.accepted("trust", judged.trust.version, judged.trust.issued_at)
        catalog = judged.catalog
        floors = floors.accepted("catalog", catalog.version, catalog.issued_at)
        self._store.save_floors(floors)
        data = folder.read(bundle.CATALOG, documents.MAX_CATALOG_BYTES * _TWICE)
        if data is not None:
            self._store.save_document(CATALOG, data)
        return judged

    def trust(self) -> Trust:
        """The newest accepted document; only reads."""
        return self._trust()[0]

    def renew(self, steps: Sequence[bytes], now: Now) -> Trust:
        """Walk to the newest of these and remember it. Raises what the gate raises."""
        trust, floors = self._trust()
        newest = gate.walk_trust(steps, trust)
        if now.trusted:
            rules.fresh(newest.expires, now, "trust")
        self._begin()
        if steps:
            self._store.save_document(TRUST, steps[-1])
            if gate.keys_changed(trust, newest, "catalog"):
                floors = floors.without_catalog()
        self._store.save_floors(floors.accepted("trust", newest.version, newest.issued_at))
        return newest

    def _begin(self) -> None:
        """Another first document than before: trust begins anew with it."""
        if self._store.document(ORIGIN) != self._first:
            self._store.save_document(TRUST, self._first)
            self._store.save_document(ORIGIN, self._first)

    def _trust(self) -> tuple[Trust, Floors]:
        """The newest accepted document and the floors. Another first document than before is
        the word of whoever owns this device: then trust begins anew, counters stay.
        """
        floors = self._store.floors()
        kept = self._store.document(TRUST)
        if self._store.document(ORIGIN) == self._first and kept is not None:
            return _parse(kept), floors
        return _parse(self._first), replace(floors, documents={})

    def _judge(
        self, folder: Folder, trust: Trust, floors: Floors, now: Now
    ) -> tuple[Judged, list[bytes]]:
        steps = list(_newer(folder, trust.version))
        newest = gate.walk_trust(steps, trust)
        if now.trusted:
            rules.fresh(newest.expires, now, "trust")
        if gate.keys_changed(trust, newest, "catalog"):
            floors = floors.without_catalog()
        data = folder.read(bundle.CATALOG, documents.MAX_CATALOG_BYTES * _TWICE)
        if data is None:
            raise FileUnreadable(
                "cannot read the bundle: it has no catalog.json",
                hint="a bundle is what 'stoker-ota bundle make' or 'bundle pack' has made",
            )
        found = gate.accept_catalog(data, newest, floors, self._previous(floors), now)
        listed = {
            name: _listed(folder, name, newest, found.catalog, floors, now)
            for name in sorted(found.catalog.manifests)
        }
        return Judged(newest, found.catalog, found.degraded, listed), steps

    def _previous(self, floors: Floors) -> Catalog | None:
        """The catalog accepted last, as it was verified then."""
        kept = self._store.document(CATALOG)
        if kept is None or not floors.document("catalog"):
            return None
        limit = documents.MAX_CATALOG_BYTES * _TWICE
        return documents.parse_catalog(envelope.parse(kept, max_bytes=limit).payload)


def choose(judged: Judged, wanted: str) -> Listed:
    """The deployment to install: the named one, or the only one of which the bundle has the
    manifest. Raises InvalidRequest, or why the gate refused it.
    """
    there = [item for item in judged.listed.values() if item.document]
    if wanted:
        found = judged.listed.get(wanted)
        if found is not None and found.refusal is not None:
            raise found.refusal
        if found is None or not found.document:
            names = ", ".join(item.deployment for item in there) or "none"
            raise InvalidRequest(f"cannot install {wanted}: the bundle has {names}")
    elif len(there) == 1:
        found = there[0]
    else:
        names = ", ".join(item.deployment for item in there) or "no deployment"
        raise InvalidRequest(f"cannot install: the bundle has {names}", hint="name one")
    if found.refusal is not None:
        raise found.refusal
    return found


def offer(found: Listed, *, forced: bool) -> Offer:
    """As the engine takes it."""
    manifest = found.manifest
    assert manifest is not None, "chosen"
    return Offer(
        deployment=found.deployment,
        version=manifest.version,
        manifest=found.sha256,
        allow_full=manifest.allow_full,
        confirm=manifest.health.confirm == "dbus",
        forced=forced,
    )


def _listed(
    folder: Folder, name: str, trust: Trust, catalog: Catalog, floors: Floors, now: Now
) -> Listed:
    """One bad manifest does not spoil the others."""
    version = catalog.manifests[name].version
    try:
        data = folder.read(bundle.manifest_path(name), MAX_MANIFEST_BYTES * _TWICE)
        if data is None:
            return Listed(name, version)
    except OtaError as error:
        return Listed(name, version, refusal=error)
    try:
        manifest = gate.accept_manifest(name, data, trust, catalog, floors, now)
    except OtaError as error:
        return Listed(name, version, None, data, error)
    return Listed(name, version, manifest, data)


def _newer(folder: Folder, version: int) -> Iterator[bytes]:
    for number in range(version + 1, version + rules.MAX_TRUST_STEPS + 1):
        data = folder.read(bundle.trust_path(number), documents.MAX_TRUST_BYTES * _TWICE)
        if data is None:
            return
        yield data


def _parse(data: bytes) -> Trust:
    limit = documents.MAX_TRUST_BYTES * _TWICE
    return documents.parse_trust(envelope.parse(data, max_bytes=limit).payload)
