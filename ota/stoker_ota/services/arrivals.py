"""Brings an object into the staging folder, and believes it only by its whole hash.

What is there already is not fetched again; what was begun is gone on with, and what cannot be
gone on with is dropped. How bytes come is the port's.
"""

from __future__ import annotations

from stoker_ota.core import have
from stoker_ota.errors import ChunkHash
from stoker_ota.ports.disk import Disk
from stoker_ota.ports.files import Progress
from stoker_ota.ports.updates import Sources
from stoker_ota.values.fetching import Wanted


def bring(disk: Disk, sources: Sources, wanted: Wanted, part: str, progress: Progress) -> None:
    """``part`` holds the object. ChunkHash when what came is something else (it is removed)."""
    journal = part + have.SUFFIX  # there as long as chunks are missing
    if disk.size(journal) is None:
        begun = disk.size(part)
        if begun == wanted.size and disk.sha256(part) == wanted.sha256:
            return
        if begun is not None and begun >= wanted.size:  # another attempt's
            disk.remove(part)
    sources.fetch(wanted, part, progress)
    if disk.size(part) != wanted.size or disk.sha256(part) != wanted.sha256:
        disk.remove(part)
        disk.remove(journal)
        raise ChunkHash(f"cannot use what was fetched for {wanted.sha256[:12]}…: its hash is wrong")
