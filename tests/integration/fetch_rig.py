"""Objects to fetch with the real child, and where they end up."""

from __future__ import annotations

import contextlib
import hashlib
import random
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from stoker_ota.core import chunks
from stoker_ota.drivers.fetcher import ChildFetcher
from stoker_ota.values.chunks import ChunkIndex
from stoker_ota.values.fetching import Link, Wanted

SIZE = 200_001
CHUNK = 8192


@dataclass
class Thing:
    """An object of random bytes with its chunks."""

    data: bytes
    chunk: int = CHUNK

    @classmethod
    def made(cls, seed: int = 1, size: int = SIZE, chunk: int = CHUNK) -> Thing:
        return cls(random.Random(seed).randbytes(size), chunk)

    @property
    def index(self) -> ChunkIndex:
        pieces = [self.data[at : at + self.chunk] for at in range(0, len(self.data), self.chunk)]
        return chunks.index_of(pieces, len(self.data), self.chunk)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def pages(self) -> bytes:
        return b"".join(chunks.pages(self.index))

    def put(self, folder: Path, name: str = "thing") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(self.data)
        (folder / f"{name}.chunks").write_bytes(self.pages)

    def blobs(self) -> dict[str, bytes]:
        """By hash: root, pages and chunks."""
        index = self.index
        pieces = [self.data[index.offset(n) :][: index.length(n)] for n in range(index.count)]
        found = [chunks.root(index), *chunks.pages(index), *pieces]
        return {hashlib.sha256(blob).hexdigest(): blob for blob in found}

    def wanted(self, *uris: str, chunked: bool = True, max_rate: int = 0) -> Wanted:
        found = chunks.of_index(self.index) if chunked else None
        return Wanted(len(self.data), self.sha256, uris, found, max_rate)


@dataclass
class Fetch:
    """One device's fetcher with a part in ``folder``."""

    folder: Path
    link: Link
    base: str = ""
    cancelled: Callable[[], bool] = lambda: False
    wire: list[int] = field(default_factory=list)
    told: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.part = self.folder / "x.part"
        self.journal = self.folder / "x.part.have"

    def __call__(self, wanted: Wanted) -> bytes:
        """What the part holds afterwards."""
        fetcher = ChildFetcher(
            self.folder, lambda: self.link, base=self.base, cancelled=self.cancelled,
            wire=self.wire.append,
        )  # fmt: skip
        fetcher.fetch(wanted, "x.part", lambda _phase, done, total: self.told.append((done, total)))
        assert not self.journal.exists()
        return self.part.read_bytes()

    @property
    def wire_bytes(self) -> int:
        return self.wire[-1]


@contextlib.contextmanager
def mounted(folder: Path, size: int) -> Iterator[Path]:
    """A disk of so many bytes; skips where nothing may be mounted."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("nothing may be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=False)
