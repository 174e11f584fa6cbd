"""What a bundle is: a folder with everything an update needs, each blob under its hash.

    trust/N.json  catalog.json  manifests/ID.json  blobs/SHA256  blobs/SHA256.chunks

The same tree serves a USB stick, a web server and a broker. Names only; nothing is read.
"""

from __future__ import annotations

from collections.abc import Iterable

from stoker_ota.core import chunks
from stoker_ota.core.manifest import Manifest
from stoker_ota.values.chunks import Chunks

CATALOG = "catalog.json"


def trust_path(version: int) -> str:
    return f"trust/{version}.json"


def manifest_path(deployment: str) -> str:
    return f"manifests/{deployment}.json"


def blob_path(sha256: str) -> str:
    return f"blobs/{sha256}"


def chunks_path(sha256: str) -> str:
    """The digests of a blob's chunks."""
    return blob_path(sha256) + chunks.SUFFIX


def chunked(manifests: Iterable[Manifest]) -> dict[str, Chunks]:
    """Hash → chunks of everything that can be fetched in pieces."""
    found: dict[str, Chunks] = {}
    for artifact in (artifact for item in manifests for artifact in item.artifacts):
        pairs = [(delta.sha256, delta.chunks) for delta in artifact.deltas]
        for sha256, pieces in ((artifact.sha256, artifact.chunks), *pairs):
            if pieces is not None:
                found[sha256] = pieces
    return found


def blobs(manifests: Iterable[Manifest]) -> dict[str, int]:
    """Hash → size of everything that any of them may ask for."""
    found: dict[str, int] = {}
    for item in manifests:
        for artifact in item.artifacts:
            found[artifact.sha256] = artifact.size
            found |= {delta.sha256: delta.size for delta in artifact.deltas}
    return found
