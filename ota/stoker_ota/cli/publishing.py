"""stoker-ota publish and unpublish: a bundle becomes retained messages of a broker, or no more."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from stoker_ota.cli import broker_words
from stoker_ota.cli.authoring import read_catalog, read_manifest
from stoker_ota.cli.bundling import MAX_PAGES_BYTES
from stoker_ota.cli.console import Bar, Console, size
from stoker_ota.core import bundle, chunks
from stoker_ota.core.bundle import CATALOG
from stoker_ota.core.manifest import MAX_MANIFEST_BYTES
from stoker_ota.core.topics import Topics
from stoker_ota.drivers import cutting, folders
from stoker_ota.drivers.files import SourceFile
from stoker_ota.drivers.publisher import Blob, Publisher
from stoker_ota.errors import FileUnreadable, InvalidRequest
from stoker_ota.values.chunks import ChunkIndex, Chunks


@dataclass
class Load:
    """What a bundle is on a broker: blobs by their topics with their sizes, then documents, the
    catalog last: whoever sees it finds everything that it names.
    """

    topics: Topics
    blobs: dict[str, Callable[[], bytes]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    documents: list[Blob] = field(default_factory=list)

    def add(self, data: bytes) -> None:
        self.put(folders.name_of(data), len(data), lambda: data)

    def put(self, sha256: str, length: int, read: Callable[[], bytes]) -> None:
        topic = self.topics.blob(sha256)
        self.blobs[topic], self.sizes[topic] = read, length


def publish(args: Namespace, console: Console) -> None:
    load = read(args.bundle, Topics(args.root))
    total = sum(load.sizes.values())
    publisher = _publisher(args)
    there: set[str] = set()
    sent = 0
    try:
        with console.bar() as bar:
            if not args.no_ask:
                there = _ask(publisher, load, total, bar)
            todo = [(name, read) for name, read in load.blobs.items() if name not in there]
            left = sum(load.sizes[name] for name, _ in todo)

            def said(count: int) -> None:
                nonlocal sent
                sent += count
                bar("publish", sent, max(left, sent))

            publisher.publish(todo, said)
            publisher.publish(load.documents, said)
    finally:
        publisher.close()
    facts = {
        "blobs": len(load.blobs), "there": len(there), "published": len(todo),
        "bytes": sent, "documents": len(load.documents),
    }  # fmt: skip
    if console.as_json:
        console.json(facts)
    else:
        console.line(
            f"{len(todo)} blobs published ({size(sent)}), {len(there)} were there; "
            f"{len(load.documents)} documents"
        )


def unpublish(args: Namespace, console: Console) -> None:
    topics = Topics(args.root)
    gone = set(read(args.bundle, topics).blobs)
    for kept in args.keep:
        gone -= set(read(kept, topics).blobs)
    publisher = _publisher(args)
    try:
        with console.bar() as bar:
            names = sorted(gone)
            done = 0

            def said(_count: int) -> None:
                nonlocal done
                done += 1
                bar("unpublish", done, len(names))

            publisher.clear(names, said)
    finally:
        publisher.close()
    if console.as_json:
        console.json({"blobs": len(gone)})
    else:
        console.line(f"{len(gone)} blobs are no longer retained.")


def read(root: Path, topics: Topics) -> Load:
    """A bundle's blobs and documents. FileUnreadable, ChunkHash, BadDocument."""
    load = Load(topics)
    catalog = read_catalog(root / CATALOG)
    manifests = []
    for name in sorted(catalog.manifests):
        path = root / bundle.manifest_path(name)
        if path.exists():
            data = folders.read(path, MAX_MANIFEST_BYTES * 2)
            load.add(data)
            manifests.append(read_manifest(data))
    pieces, lengths = bundle.chunked(manifests), bundle.blobs(manifests)
    for sha256, length in lengths.items():
        path = root / bundle.blob_path(sha256)
        if not path.exists():
            continue  # devices find it elsewhere
        if sha256 not in pieces:
            raise InvalidRequest(
                f"cannot publish {path}: its manifest has no chunks of it",
                hint="make the manifest anew, with a chunk_size",
            )
        _add_object(load, root, path, sha256, length, pieces[sha256])
    for version in folders.versions(root / "trust"):
        data = folders.read(root / bundle.trust_path(version))
        load.documents.append((topics.trust(version), partial(bytes, data)))
    data = folders.read(root / CATALOG)
    load.documents.append((topics.catalog(), partial(bytes, data)))
    return load


def _add_object(
    load: Load, root: Path, path: Path, sha256: str, length: int, wanted: Chunks
) -> None:
    """Chunks, then their pages, then the root: as long as the root is missing, so may others."""
    pages = root / bundle.chunks_path(sha256)
    if pages.exists():
        index = chunks.of_pages(folders.read(pages, MAX_PAGES_BYTES), wanted, length)
    else:
        index = cutting.index_of(path, wanted.size)
        if chunks.of_index(index) != wanted:
            raise FileUnreadable(f"cannot publish {path}: it is not what the manifest names")
    file = SourceFile(path)
    for number in range(index.count):
        load.put(index.digest(number).hex(), index.length(number), _reader(file, index, number))
    for blob in (*chunks.pages(index), chunks.root(index)):
        load.add(blob)


def _reader(file: SourceFile, index: ChunkIndex, number: int) -> Callable[[], bytes]:
    return partial(file.read_at, index.offset(number), index.length(number))


def _ask(publisher: Publisher, load: Load, total: int, bar: Bar) -> set[str]:
    there, asked = set(), 0
    names = list(load.blobs)
    for name in publisher.there(names):
        there.add(name)
        asked += load.sizes[name]
        bar("ask", asked, total)
    return there


def _publisher(args: Namespace) -> Publisher:
    return Publisher(broker_words.broker(args), args.max_rate)
