"""What a bundle is: a folder with everything an update needs, each blob under its hash.

    trust/N.json  catalog.json  manifests/ID.json  blobs/SHA256

The same tree serves a USB stick, a web server and a broker. Names only; nothing is read.
"""

from __future__ import annotations

from collections.abc import Iterable

from stoker_ota.core.manifest import Manifest

CATALOG = "catalog.json"


def trust_path(version: int) -> str:
    return f"trust/{version}.json"


def manifest_path(deployment: str) -> str:
    return f"manifests/{deployment}.json"


def blob_path(sha256: str) -> str:
    return f"blobs/{sha256}"


def blobs(manifests: Iterable[Manifest]) -> dict[str, int]:
    """Hash → size of everything that any of them may ask for."""
    found: dict[str, int] = {}
    for item in manifests:
        for artifact in item.artifacts:
            found[artifact.sha256] = artifact.size
            found |= {delta.sha256: delta.size for delta in artifact.deltas}
    return found
