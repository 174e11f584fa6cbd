"""Documents of a source are copied as a bundle has them, whatever the catalog says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from stoker_ota.core import envelope
from stoker_ota.core.listing import Named
from stoker_ota.drivers import documents
from stoker_ota.errors import TooLarge, Unavailable


def signed(value: object) -> bytes:
    signature = envelope.Signature(bytes(64), (b"der",))
    return envelope.encode(envelope.Envelope("t", json.dumps(value).encode(), (signature,)))


def catalog(*names: str) -> bytes:
    entry = {"version": 1, "sha256": "ab" * 32, "length": 10}
    return signed({"schema": 1, "manifests": dict.fromkeys(names, entry)})


@dataclass
class Shelf:
    trusts: dict[int, bytes] = field(default_factory=dict)
    list_of_all: bytes | None = None
    there: dict[str, bytes] = field(default_factory=dict)

    def trust(self, version: int) -> bytes | None:
        return self.trusts.get(version)

    def catalog(self) -> bytes | None:
        return self.list_of_all

    def manifests(self, names: Sequence[Named]) -> Iterator[tuple[Named, bytes]]:
        for named in names:
            if named.name in self.there:
                yield named, self.there[named.name]


def copied(shelf: Shelf, folder: Path, version: int = 1) -> dict[str, bytes]:
    documents.copy(shelf, folder, version, lambda _done, _total: None)
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_newer_trust_the_catalog_and_what_is_there_of_its_manifests(tmp_path: Path) -> None:
    shelf = Shelf({2: b"two", 3: b"three", 5: b"five"}, catalog("chat", "vision"), {"chat": b"m"})
    assert copied(shelf, tmp_path) == {
        "trust/2.json": b"two", "trust/3.json": b"three", "catalog.json": shelf.list_of_all,
        "manifests/chat.json": b"m",
    }  # fmt: skip


def test_a_catalog_that_cannot_be_read_is_copied_for_whoever_judges_it(tmp_path: Path) -> None:
    assert copied(Shelf(list_of_all=b"junk"), tmp_path) == {"catalog.json": b"junk"}
    bad = catalog("../../etc/passwd")
    assert copied(Shelf(list_of_all=bad), tmp_path / "2") == {"catalog.json": bad}


def test_no_catalog_and_too_much_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match="no catalog"):
        copied(Shelf(), tmp_path)
    monkeypatch.setattr(documents, "MAX_TOTAL_BYTES", 2000)
    with pytest.raises(TooLarge):
        copied(Shelf(list_of_all=catalog("chat"), there={"chat": bytes(3000)}), tmp_path)
    junk = {version: bytes(500) for version in range(2, 100)}
    with pytest.raises(TooLarge):
        copied(Shelf(junk, list_of_all=catalog("chat")), tmp_path / "junk")
    assert len(list((tmp_path / "junk/trust").iterdir())) == 4
