"""Whether an update has room before it begins: on the disk, and in memory for what applies it.

Whether the trial of the set can have its own is ``ports.updates.Health.room``'s to say.
"""

from __future__ import annotations

from collections.abc import Sequence

from stoker_ota.core import routes
from stoker_ota.core.routes import Route
from stoker_ota.errors import NoMemory, NoSpace
from stoker_ota.ports.disk import Disk


def check(
    chosen: Sequence[Route], spare_bytes: int, disk: Disk, staging: str, memory_bytes: int
) -> None:
    """``spare_bytes``: to be left free beside it. Raises NoSpace, NoMemory.

    What was fetched before a wait for room is room already.
    """
    begun = min(disk.held_bytes(staging), sum(route.disk_bytes for route in chosen))
    need, free = routes.needed_bytes(chosen) - begun + spare_bytes, disk.free_bytes()
    if free < need:
        raise NoSpace(
            f"cannot install: {need} bytes are needed, {free} are free",
            details={"needed": need, "free": free},
        )
    least = routes.needed_memory(chosen)
    if memory_bytes < least:
        raise NoMemory(
            f"cannot install: {least} bytes of memory are needed, {memory_bytes} are free",
            details={"needed": least, "free": memory_bytes},
        )
