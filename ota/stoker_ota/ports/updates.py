"""What the update engine needs from outside: sources, health, the device, its files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from stoker_ota.core.clock import Now
from stoker_ota.core.manifest import Manifest
from stoker_ota.core.targeting import Device
from stoker_ota.ports.files import Progress
from stoker_ota.values.deployment import Member
from stoker_ota.values.fetching import Wanted


class Sources(Protocol):
    def fetch(self, wanted: Wanted, part: str, progress: Progress) -> None:
        """An object into the store's file ``part``, going on with what is there of it.

        As long as ``part`` has holes, ``<part>.have`` is beside it. Unavailable (try again
        later), NoSpace, StorageFailed, Cancelled. What arrived is not judged here as a whole:
        the engine hashes it.
        """
        ...


class Patcher(Protocol):
    def apply(
        self, delta: str, index_sha256: str, source: str, part: str, size: int, progress: Progress
    ) -> None:
        """Makes ``part`` of ``source`` by ``delta``; goes on at the window where it stopped.

        ``size``: bytes of the result as the manifest has them; more is never written. When
        this returns or raises, nobody has the part open any more. BadDelta, ChunkHash,
        ResultHash, SourceMismatch, FileUnreadable, NoSpace, StorageFailed, NoMemory, Cancelled;
        Unavailable (try again; what was made stays). After any other error the part is gone.
        """
        ...


class Health(Protocol):
    """The agent's side: the runtime that uses a set."""

    def room(self, manifest: Manifest) -> None:
        """Asked before anything is fetched: whether the trial can have the memory it needs, as
        far as sizes tell. NoMemory (try again later), WrongTarget (never on this device).
        """
        ...

    def test(self, manifest: Manifest, generation: int, members: tuple[Member, ...]) -> None:
        """Load this set, probe it, use it from now on, soak.

        Raises Unhealthy with the reason; then either set may be in use until ``switch``.
        """
        ...

    def switch(self, generation: int, members: tuple[Member, ...]) -> str:
        """Go back to this set (0 = the package's own), which served before. Raises Unhealthy.

        Why what serves now is not well, or not that set; "" = all is well.
        """
        ...


class Surroundings(Protocol):
    def now(self) -> Now: ...

    def local_hour(self) -> int: ...

    def device(self) -> Device: ...

    def free_memory_bytes(self) -> int:
        """What the device could give to a process now."""
        ...

    def inhibited(self) -> str:
        """Who asked to wait and why; "" = nobody."""
        ...

    def package_files(self) -> Mapping[str, str]:
        """Read-only files of the package that deltas may start from: hash → path."""
        ...
