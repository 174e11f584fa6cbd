"""A manifest from its recipe: what people write in TOML, completed by what was measured.

The recipe names files; sizes and hashes are measured by the caller and never written by
hand. The result is the same bytes for the same inputs, and the parser has read it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from stoker_ota.core import manifest, strict_json
from stoker_ota.errors import BadDocument, OtaError
from stoker_ota.getters import Table
from stoker_ota.values.chunks import (
    DEFAULT_CHUNK_BYTES,
    MAX_CHUNK_BYTES,
    MIN_CHUNK_BYTES,
    Chunks,
)

PASSED_ON: Final = (
    "deployment_id", "version", "issued_at", "expires", "min_agent_version", "targets", "rollout",
    "window", "network", "health", "depends",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wanted:
    """An artifact as the recipe says it; paths are relative to the recipe."""

    kind: str
    name: str
    version: str
    release_counter: int
    file: str
    base: str = ""  # of an adapter: the model's file
    deltas: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()  # where the whole file may be fetched; {sha256} stands for it


@dataclass(frozen=True, slots=True)
class Measured:
    size: int
    sha256: str
    chunks: Chunks | None = None


@dataclass(frozen=True, slots=True)
class MeasuredDelta:
    size: int
    sha256: str
    index_sha256: str
    from_sha256: str
    to_sha256: str
    chunks: Chunks | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """``chunk_size``: of what is fetched in pieces, bytes; 0 = nothing is."""

    head: Mapping[str, object]
    artifacts: tuple[Wanted, ...]
    chunk_size: int = DEFAULT_CHUNK_BYTES


def parse(value: object) -> Recipe:
    """The recipe's TOML tables. Raises BadDocument."""
    table = Table(value, _fail)
    head = {key: table.raw(key) for key in PASSED_ON if table.has(key)}
    wanted = tuple(_wanted(item) for item in table.tables("artifacts", max_items=32))
    size = table.whole("chunk_size", DEFAULT_CHUNK_BYTES, low=0, high=MAX_CHUNK_BYTES)
    if 0 < size < MIN_CHUNK_BYTES:
        table.refuse("chunk_size", f"{size} is less than {MIN_CHUNK_BYTES}")
    table.finish()
    if not wanted:
        table.refuse("artifacts", "is empty")
    return Recipe(head, wanted, size)


def payload(
    recipe: Recipe, files: Mapping[str, Measured], deltas: Mapping[str, MeasuredDelta]
) -> bytes:
    """The manifest's bytes. Raises BadDocument: also when a delta does not lead to its file."""
    value = {
        "schema": 1,
        **recipe.head,
        "artifacts": [_artifact(item, files, deltas) for item in recipe.artifacts],
    }
    data = strict_json.dumps(value)
    manifest.parse_manifest(data)  # what a device refuses is never published
    return data


def _wanted(table: Table) -> Wanted:
    wanted = Wanted(
        kind=table.choice("kind", manifest.KINDS),
        name=table.text("name"),
        version=table.text("version"),
        release_counter=table.whole("release_counter", 0, low=0, high=1 << 53),
        file=table.text("file"),
        base=table.text("base", ""),
        deltas=table.texts("deltas", ()),
        sources=table.texts("sources", ("file:blobs/{sha256}",)),
    )
    if any(mark in uri.replace("{sha256}", "") for uri in wanted.sources for mark in "{}"):
        table.refuse("sources", "has a { or } that is not of {sha256}")
    names = {"file": (wanted.file,), "base": (wanted.base,), "deltas": wanted.deltas}
    for key, texts in names.items():
        if any("\0" in text for text in texts):
            table.refuse(key, "is no name of a file")
    table.finish()
    return wanted


def _artifact(
    wanted: Wanted, files: Mapping[str, Measured], deltas: Mapping[str, MeasuredDelta]
) -> dict[str, object]:
    here = files[wanted.file]
    value: dict[str, object] = {
        "kind": wanted.kind, "name": wanted.name, "version": wanted.version,
        "release_counter": wanted.release_counter, "size": here.size, "sha256": here.sha256,
        "full": [uri.replace("{sha256}", here.sha256) for uri in wanted.sources],
    }  # fmt: skip
    if here.chunks is not None:
        value["chunks"] = _chunks(here.chunks)
    if wanted.base:
        value["base_sha256"] = files[wanted.base].sha256
    if wanted.deltas:
        value["deltas"] = [_delta(wanted, here, deltas[path]) for path in wanted.deltas]
    return value


def _delta(wanted: Wanted, here: Measured, delta: MeasuredDelta) -> dict[str, object]:
    if delta.to_sha256 != here.sha256:
        raise BadDocument(f"cannot publish {wanted.name}: a delta of it leads to another file")
    value: dict[str, object] = {
        "from_sha256": delta.from_sha256, "size": delta.size, "sha256": delta.sha256,
        "index_sha256": delta.index_sha256,
        "sources": [uri.replace("{sha256}", delta.sha256) for uri in wanted.sources],
    }  # fmt: skip
    if delta.chunks is not None:
        value["chunks"] = _chunks(delta.chunks)
    return value


def _chunks(chunks: Chunks) -> dict[str, object]:
    return {"size": chunks.size, "root": chunks.root}


def _fail(path: str, reason: str) -> OtaError:
    return BadDocument(f"cannot read recipe: {path}: {reason}", details={"path": path})
