"""How each artifact of a set comes about: it is here already, by a delta, or whole. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from stoker_ota.core.manifest import Artifact, Delta, Manifest
from stoker_ota.errors import SourceMismatch
from stoker_ota.values.fetching import Wanted

APPLY_MEMORY_BYTES = 88 << 20
"""What the process that applies a delta may take (its limit of addresses)."""
RESERVE_BYTES = 64 << 20
"""Left free beside what an update needs: logs and journals must go on."""


@dataclass(frozen=True, slots=True)
class Route:
    """``delta`` None and ``fetch`` False = the object is here already."""

    artifact: Artifact
    delta: Delta | None = None
    fetch: bool = False

    @property
    def wire_bytes(self) -> int:
        """To fetch."""
        if not self.fetch:
            return 0
        return self.artifact.size if self.delta is None else self.delta.size

    @property
    def disk_bytes(self) -> int:
        """In the store while it is made: the result and, beside it, its delta; a runtime is
        also unpacked.
        """
        unpacked = self.artifact.size if self.artifact.kind == "runtime" else 0
        if not self.fetch:
            return unpacked
        return unpacked + self.artifact.size + (self.delta.size if self.delta is not None else 0)

    def wanted(self, manifest: Manifest) -> Wanted:
        """The object to fetch: the delta's file, or the whole artifact."""
        delta, whole = self.delta, self.artifact
        uris = whole.full if delta is None else delta.sources
        return Wanted(
            size=whole.size if delta is None else delta.size,
            sha256=whole.sha256 if delta is None else delta.sha256,
            uris=tuple(source.uri for source in uris),
            chunks=whole.chunks if delta is None else delta.chunks,
            max_rate=manifest.max_rate,
            allow_metered=manifest.allow_metered,
        )


def choose(manifest: Manifest, here: Collection[str], *, whole: bool) -> tuple[Route, ...]:
    """Raises SourceMismatch when an artifact can come by no way.

    ``here``: hashes of all files a delta may start from, the store's and the package's.
    ``whole``: deltas failed too often.
    """
    return tuple(
        _route(item, here, allow_full=manifest.allow_full, whole=whole)
        for item in manifest.artifacts
    )


def _route(artifact: Artifact, here: Collection[str], *, allow_full: bool, whole: bool) -> Route:
    if artifact.sha256 in here:
        return Route(artifact)
    fitting = [delta for delta in artifact.deltas if delta.from_sha256 in here]
    best = min(fitting, key=lambda delta: (delta.size, delta.sha256), default=None)
    can_full = bool(artifact.full) and (allow_full or not artifact.deltas)
    if best is not None and not whole and (best.size < artifact.size or not can_full):
        return Route(artifact, best, fetch=True)
    if can_full:
        return Route(artifact, fetch=True)
    raise SourceMismatch(
        f"cannot install {artifact.name}: no file here is what its deltas start from, and the "
        "whole artifact may not be fetched",
        details={"deltas": len(artifact.deltas)},
    )


def needed_memory(routes: Iterable[Route]) -> int:
    """Free bytes of memory for what is done before the trial, which asks for its own."""
    return APPLY_MEMORY_BYTES if any(route.delta is not None for route in routes) else 0


def needed_bytes(routes: Iterable[Route]) -> int:
    """Free bytes that must be there before anything is fetched."""
    return sum(route.disk_bytes for route in routes) + RESERVE_BYTES
