"""What a device takes in from a bundle: newer trust, the catalog, and one manifest to install.

Everything goes through ``core.gate``; what was accepted is kept in the store, so that it is
never accepted in an older version again. Nothing is fetched or installed here. Only this
module and the gate need cryptography.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from stoker_ota.core import bundle, documents, envelope, gate, rules
from stoker_ota.core.clock import Now
from stoker_ota.core.documents import Catalog, Trust
from stoker_ota.core.floors import Floors
from stoker_ota.core.manifest import MAX_MANIFEST_BYTES, Manifest
from stoker_ota.errors import BadDocument, FileUnreadable, InvalidRequest, OtaError, TooLarge
from stoker_ota.services.store import Store
from stoker_ota.values.deployment import Offer

_T = TypeVar("_T")
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


@dataclass(frozen=True, slots=True)
class _Walked:
    """The newest trust, its signed bytes (empty = no step was made), and the floors with it."""

    newest: Trust
    last: bytes
    floors: Floors


class Intake:
    """``first_trust`` is the document that the operator installed on this device."""

    def __init__(self, store: Store, first_trust: bytes) -> None:
        self._store, self._first = store, first_trust

    def inspect(self, folder: Folder, now: Now) -> Judged:
        """What ``accept`` would say; nothing is kept. Raises what the gate raises."""
        trust, floors = self._trust()
        walked = _walk(_newer(folder, trust.version), trust, floors, now)
        return self._judge(folder, walked, now)[0]

    def accept(self, folder: Folder, now: Now) -> Judged:
        """Judge a bundle and remember that it was accepted: trust first, also when the catalog
        is refused then (a revocation must not wait for a fresh one), then the catalog.
        """
        trust, floors = self._trust()
        walked = _walk(_newer(folder, trust.version), trust, floors, now)
        self._keep(walked)
        judged, data = self._judge(folder, walked, now)
        # before its floor: after a cut between both the same bundle is still no replay
        if data != self._store.document(CATALOG):
            self._store.save_document(CATALOG, data)
        catalog = judged.catalog
        raised = walked.floors.accepted("catalog", catalog.version, catalog.issued_at, now)
        if raised != walked.floors:
            self._store.save_floors(raised)
        return judged

    def trust(self) -> Trust:
        """The newest accepted document; only reads. Rollback when it was damaged since, and what
        is left is older: it may trust whom the newest one revoked.
        """
        trust, floors = self._trust()
        rules.not_older(trust.version, floors.document("trust"), "trust")
        return trust

    def renew(self, steps: Sequence[bytes], now: Now) -> Trust:
        """Walk to the newest of these and remember it. Raises what the gate raises."""
        trust, floors = self._trust()
        walked = _walk(steps, trust, floors, now)
        self._keep(walked)
        return walked.newest

    def known(self) -> bytes:
        """The signed bytes of what ``trust`` gives; only reads."""
        return self._newest()[0]

    def _newest(self) -> tuple[bytes, Trust | None, bool]:
        """Its signed bytes; as it is read, None for the operator's document, which nobody has
        looked at yet; and whether trust began with that document."""
        begun = self._store.document(ORIGIN) == self._first
        kept = self._store.document(TRUST)
        parsed = _readable(_parse, kept) if begun and kept is not None else None
        if kept is None or parsed is None:
            return self._first, None, begun
        return kept, parsed, begun

    def _keep(self, walked: _Walked) -> None:
        """Floors first: a cut then leaves a device that takes nothing below the newest trust,
        never one that keeps a thief's fast-forward beside new keys. A first document that is
        another one than before is known last, or the next start begins anew once more.
        """
        if walked.floors != self._store.floors():
            self._store.save_floors(walked.floors)
        kept = self._store.document(TRUST)
        damaged = kept is not None and _readable(_parse, kept) is None
        if damaged:
            self._store.set_aside(TRUST)
        begun = self._store.document(ORIGIN) == self._first
        if walked.last or not begun or kept is None or damaged:
            self._store.save_document(TRUST, walked.last or self._first)
        if not begun:
            self._store.save_document(ORIGIN, self._first)

    def _trust(self) -> tuple[Trust, Floors]:
        """The newest accepted document and the floors. Another first document than before is
        the word of whoever owns this device: then trust begins anew, counters stay. So it does
        where the document is damaged; what it must reach again, the floors know.
        """
        floors = self._store.floors()
        signed, parsed, begun = self._newest()
        return parsed or _parse(signed), floors if begun else Floors(counters=floors.counters)

    def _judge(self, folder: Folder, walked: _Walked, now: Now) -> tuple[Judged, bytes]:
        """And the catalog's signed bytes."""
        newest, floors = walked.newest, walked.floors
        data = folder.read(bundle.CATALOG, documents.MAX_CATALOG_BYTES * _TWICE)
        if data is None:
            raise FileUnreadable(
                "cannot read the bundle: it has no catalog.json",
                hint="a bundle is what 'stoker-ota bundle make' or 'bundle pack' has made",
            )
        found = gate.accept_catalog(data, newest, floors, self._previous(), now)
        listed = {
            name: _listed(folder, name, newest, found.catalog, floors, now)
            for name in sorted(found.catalog.manifests)
        }
        return Judged(newest, found.catalog, found.degraded, listed), data

    def _previous(self) -> Catalog | None:
        """The catalog accepted last, as it was verified then; None when it is damaged, for the
        next one takes its place and the floors hold.
        """
        kept = self._store.document(CATALOG)
        return None if kept is None else _readable(_parse_catalog, kept)


def _walk(steps: Iterable[bytes], trust: Trust, floors: Floors, now: Now) -> _Walked:
    newest, last = gate.walk_trust(steps, trust)
    rules.not_older(newest.version, floors.document("trust"), "trust")
    if now.trusted:
        rules.fresh(newest.expires, now, "trust")
    if gate.keys_changed(trust, newest, "catalog"):
        floors = floors.without_catalog()
    return _Walked(newest, last, floors.accepted("trust", newest.version, newest.issued_at, now))


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


def _parse_catalog(data: bytes) -> Catalog:
    limit = documents.MAX_CATALOG_BYTES * _TWICE
    return documents.parse_catalog(envelope.parse(data, max_bytes=limit).payload)


def _readable(parse: Callable[[bytes], _T], data: bytes) -> _T | None:
    """None when what was kept is damaged."""
    with contextlib.suppress(BadDocument, TooLarge):
        return parse(data)
    return None
