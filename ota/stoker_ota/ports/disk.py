"""The few things the store does to a disk, so that tests can cut the power between any two.

Paths are relative to the store's folder. What is written may be lost until it is synced;
what is linked, renamed or removed may be undone until its folder is synced.
"""

from __future__ import annotations

from typing import Protocol


class Disk(Protocol):
    def read(self, path: str, max_bytes: int) -> bytes | None:
        """None when there is no such file. FileUnreadable, also when it is longer."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """A file with these bytes, synced; its name is not. NoSpace, StorageFailed."""
        ...

    def append(self, path: str, data: bytes) -> None:
        """Bytes after the end, synced. NoSpace, StorageFailed."""
        ...

    def rename(self, old: str, new: str) -> None:
        """``new`` is replaced at once or not at all. StorageFailed."""
        ...

    def symlink(self, target: str, path: str) -> None: ...

    def readlink(self, path: str) -> str | None:
        """None when it is no link. FileUnreadable when the disk does not say."""
        ...

    def make_folder(self, path: str) -> None:
        """With its parents; exists already = nothing happens."""
        ...

    def names(self, folder: str) -> tuple[str, ...]:
        """What is in it, sorted; empty when it is not there. FileUnreadable."""
        ...

    def remove(self, path: str) -> None:
        """A file, a link, or a folder with all that is in it; absent = nothing happens."""
        ...

    def sync_folder(self, path: str) -> None:
        """Names in the folder are on the disk when this returns. StorageFailed."""
        ...

    def size(self, path: str) -> int | None:
        """Bytes of a regular file; None when there is none. FileUnreadable when the disk does
        not say: then nobody may take it for gone.
        """
        ...

    def sha256(self, path: str) -> str:
        """Of the whole file, read from the disk and not from memory. FileUnreadable."""
        ...

    def read_part(self, path: str, offset: int, size: int) -> bytes:
        """Exactly these bytes. FileUnreadable, also when the file is shorter."""
        ...

    def copy_part(self, path: str, offset: int, size: int, target: str) -> None:
        """A new file with this stretch of another one, synced; its name is not. NoSpace,
        StorageFailed, FileUnreadable."""
        ...

    def seal(self, path: str) -> None:
        """Nobody writes into it any more; its bytes are synced."""
        ...

    def free_bytes(self) -> int:
        """FileUnreadable."""
        ...

    def held_bytes(self, folder: str) -> int:
        """What the files right in it take up on the disk, holes not counted. FileUnreadable."""
        ...
