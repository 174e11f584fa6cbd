"""stoker-ota bundle make and verify: the folder that devices read, and a device's judgement."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from stoker_ota.cli.authoring import read_catalog, read_manifest
from stoker_ota.cli.console import Bar, Console, size
from stoker_ota.cli.keyring import moment, read_trust
from stoker_ota.core import bundle, chunks, documents, gate, rules
from stoker_ota.core.clock import Now
from stoker_ota.core.floors import Floors
from stoker_ota.core.manifest import MAX_MANIFEST_BYTES, Manifest
from stoker_ota.drivers import cutting, folders
from stoker_ota.errors import ChunkHash, InvalidRequest, MixAndMatch
from stoker_ota.values.chunks import DIGEST_BYTES, MAX_CHUNKS, Chunks

MAX_PAGES_BYTES = MAX_CHUNKS * DIGEST_BYTES


def make(args: Namespace, console: Console) -> None:
    catalog = read_catalog(args.catalog)
    made: dict[str, Manifest] = {}
    for path in args.manifests:
        data = folders.read(path, MAX_MANIFEST_BYTES * 2)
        found = read_manifest(data)
        name = found.deployment_id
        if name not in catalog.manifests:
            raise MixAndMatch(f"cannot bundle {path}: the catalog does not list it")
        rules.listed(name, catalog.manifests, data, found.version)
        made[found.deployment_id] = found
        _copy(path, args.output / bundle.manifest_path(found.deployment_id))
    wanted, pieces = bundle.blobs(made.values()), bundle.chunked(made.values())
    with console.bar() as bar:
        for number, path in enumerate(args.blobs):
            bar("blobs", number, len(args.blobs))
            _, digest = folders.measure(path)
            if digest not in wanted:
                raise InvalidRequest(f"cannot bundle {path}: no manifest names it")
            folders.link_or_copy(path, args.output / bundle.blob_path(digest))
            if digest in pieces:
                _cut(path, args.output / bundle.chunks_path(digest), pieces[digest])
    for path in args.trust:
        _copy(path, args.output / bundle.trust_path(read_trust(path).version))
    _copy(args.catalog, args.output / bundle.CATALOG)
    missing = [s for s in wanted if not (args.output / bundle.blob_path(s)).exists()]
    facts = {"bundle": str(args.output), "manifests": sorted(made), "missing": missing}
    if console.as_json:
        console.json(facts)
        return
    console.line(f"{args.output}: {len(made)} manifest(s), {len(wanted) - len(missing)} blob(s)")
    if missing:
        console.note(f"{len(missing)} blob(s) are not in it; devices must find them elsewhere.")


def verify(args: Namespace, console: Console) -> None:
    """As a device does it that knows ``--trust`` and has accepted nothing yet."""
    root: Path = args.bundle
    if root.is_file():
        raise InvalidRequest(
            f"cannot verify {root}: it is packed",
            hint="verify the folder that 'stoker-ota bundle pack' has made it of",
        )
    now = Now(moment(args), trusted=True)
    first = read_trust(args.trust)
    trust, _ = gate.walk_trust(_newer_trust(root, first), first)
    data = folders.read(root / bundle.CATALOG, documents.MAX_CATALOG_BYTES * 2)
    catalog = gate.accept_catalog(data, trust, Floors(), None, now).catalog
    found = []
    for name in sorted(catalog.manifests):
        path = root / bundle.manifest_path(name)
        if path.exists():
            envelope = folders.read(path, MAX_MANIFEST_BYTES * 2)
            found.append(gate.accept_manifest(name, envelope, trust, catalog, Floors(), now))
    with console.bar() as bar:
        checked = _check_blobs(root, found, bar)
    facts = {
        "trust": trust.version,
        "catalog": catalog.version,
        "manifests": {item.deployment_id: item.version for item in found},
        "blobs": len(checked),
        "bytes": sum(checked.values()),
    }
    if console.as_json:
        console.json(facts)
        return
    console.table(
        [
            ("trust", f"version {trust.version}"),
            ("catalog", f"version {catalog.version}"),
            *((item.deployment_id, f"version {item.version}") for item in found),
            ("blobs", f"{len(checked)}, {size(sum(checked.values()))}"),
        ]
    )


def _newer_trust(root: Path, known: documents.Trust) -> Iterator[bytes]:
    version = known.version + 1
    while (path := root / bundle.trust_path(version)).exists():
        yield folders.read(path, documents.MAX_TRUST_BYTES * 2)
        version += 1


def _check_blobs(root: Path, manifests: list[Manifest], bar: Bar) -> dict[str, int]:
    """Those that are there: their hashes and sizes. ChunkHash for the first that is wrong."""
    wanted, pieces = bundle.blobs(manifests), bundle.chunked(manifests)
    checked: dict[str, int] = {}
    for number, (digest, length) in enumerate(wanted.items()):
        bar("blobs", number, len(wanted))
        path = root / bundle.blob_path(digest)
        if not path.exists():
            continue
        measured = folders.measure(path)
        if measured != (length, digest):
            raise ChunkHash(f"cannot accept {path}: it has other bytes than its name says")
        checked[digest] = length
        pages = root / bundle.chunks_path(digest)
        if digest in pieces and pages.exists():
            chunks.of_pages(folders.read(pages, MAX_PAGES_BYTES), pieces[digest], length)
    return checked


def _cut(path: Path, target: Path, wanted: Chunks) -> None:
    """The digests of its chunks beside a blob, for web servers and for publishing."""
    index = cutting.index_of(path, wanted.size)
    if chunks.of_index(index) != wanted:
        raise ChunkHash(f"cannot bundle {path}: its chunks are not those of the manifest")
    folders.replace(target, b"".join(chunks.pages(index)))


def _copy(path: Path, target: Path) -> None:
    folders.replace(target, folders.read(path)) if target.exists() else folders.write_new(
        target, folders.read(path)
    )
