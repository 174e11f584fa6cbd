"""A whole bundle of less than 64 KiB as stoker-ota makes it: no changed byte of it is taken."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from tests.fakes.disk import FakeDisk
from tests.fakes.update_bundles import Operator, ota

from stoker_ota.core import bundle, chunks
from stoker_ota.core.clock import Now
from stoker_ota.core.manifest import Artifact, Delta
from stoker_ota.errors import OtaError
from stoker_ota.services.intake import Intake, choose
from stoker_ota.services.store import Store

MAX_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Folder:
    files: Mapping[str, bytes]

    def read(self, name: str, max_bytes: int) -> bytes | None:
        data = self.files.get(name)
        assert data is None or len(data) <= max_bytes
        return data


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Operator:
    return Operator.found(tmp_path_factory.mktemp("operator"))


@pytest.fixture(scope="module")
def files(operator: Operator) -> dict[str, bytes]:
    """A delta, its manifest, a catalog and a second trust document, by name."""
    old = random.Random(3).randbytes(20_000)
    (operator.home / "v1").write_bytes(old)
    (operator.home / "v2").write_bytes(old[:9000] + b"something else" + old[9000:])
    ota("trust", "rotate", "release", home=operator.home)
    folder = operator.bundle(1, operator.home / "v1", operator.home / "v2")
    second = operator.home / "pki/trust/2.json"
    found = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    found.pop(bundle.trust_path(1), None)  # the operator has installed that: it is not looked at
    found[bundle.trust_path(2)] = second.read_bytes()
    assert sum(map(len, found.values())) < MAX_BYTES
    return found


def take(files: Mapping[str, bytes], first_trust: bytes) -> None:
    """As a device does up to the point where the delta is applied. OtaError."""
    now = Now(datetime.now(UTC) + timedelta(hours=1), trusted=True)
    judged = Intake(Store(FakeDisk()), first_trust).inspect(Folder(files), now)
    manifest = choose(judged, "").manifest
    assert manifest is not None
    assert judged.trust.version == 2
    blobs = {name: data for name, data in files.items() if name.startswith("blobs/")}
    assert blobs
    for digest, size in bundle.blobs([manifest]).items():
        data = blobs.pop(bundle.blob_path(digest), None)
        if data is not None and (len(data), hashlib.sha256(data).hexdigest()) != (size, digest):
            raise OtaError("the hash that the engine compares before anything reads it")
    for item in manifest.artifacts:
        things: tuple[Artifact | Delta, ...] = (item, *item.deltas)
        for thing in things:
            pages = blobs.pop(f"{bundle.blob_path(thing.sha256)}.chunks", None)
            if pages is not None:
                assert thing.chunks is not None
                chunks.of_pages(pages, thing.chunks, thing.size)
    assert not blobs, "every blob is named by the manifest"


def test_no_changed_byte_of_a_whole_bundle_is_taken(
    files: dict[str, bytes], operator: Operator
) -> None:
    first_trust = operator.trust.read_bytes()
    take(files, first_trust)
    chance = random.Random(5)
    for name, data in files.items():
        for at in range(len(data)):
            changed = bytearray(data)
            changed[at] ^= 1 << chance.randrange(8)
            with pytest.raises(OtaError):
                take({**files, name: bytes(changed)}, first_trust)
        with pytest.raises(OtaError):
            take({**files, name: data[:-1]}, first_trust)
