"""A disk that loses what was not synced, and whose power can be cut before any operation.

Files and folders are inodes with two pictures: what a process sees and what is on the
platter. Bytes reach the platter by their file's sync, names by their folder's. After a
cut a random part of what was not synced may be there as well, as on real disks.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field

from stoker_ota.errors import FileUnreadable, NoSpace, StorageFailed


class PowerCutError(BaseException):
    """No ``except Exception`` may survive it."""


@dataclass(eq=False)
class Inode:
    """A file, a link (``target``) or a folder (``names``)."""

    data: bytes = b""
    kept: bytes | None = None  # of a file: what its last sync brought to the platter
    target: str = ""
    names: dict[str, Inode] | None = None
    kept_names: dict[str, Inode] = field(default_factory=dict)


def folder() -> Inode:
    return Inode(names={})


@dataclass
class FakeDisk:
    """``cut_at`` and ``fail_at``: the operation, counted from 1, that does not happen.
    ``fail_read_at``: the same of what only reads; ``unreadable``: paths that never can be read.
    """

    root: Inode = field(default_factory=folder)
    cut_at: int = 0
    fail_at: int = 0
    failure: str = "eio"  # eio | enospc
    count: int = 0
    fail_read_at: int = 0
    reads: int = 0
    unreadable: set[str] = field(default_factory=set)
    free: int = 1 << 40

    def _operate(self) -> None:
        self.count += 1
        if self.count == self.cut_at:
            raise PowerCutError
        if self.count == self.fail_at:
            kind = NoSpace if self.failure == "enospc" else StorageFailed
            raise kind("cannot write: the test says so")

    def _look(self, path: str) -> None:
        self.reads += 1
        if self.reads == self.fail_read_at or path in self.unreadable:
            raise FileUnreadable(f"cannot read {path}: the test says so")

    def read(self, path: str, max_bytes: int) -> bytes | None:
        self._look(path)
        node = self._find(path)
        if node is None:
            return None
        if node.names is not None or len(node.data) > max_bytes:
            raise FileUnreadable(f"cannot read {path}")
        return node.data

    def write(self, path: str, data: bytes) -> None:
        names, name = self._place(path)
        node = names.get(name) or Inode()
        node.data = b""
        names[name] = node
        self._grow(node, b"", data)

    def append(self, path: str, data: bytes) -> None:
        names, name = self._place(path)
        node = names.setdefault(name, Inode())
        self._grow(node, node.data, data)

    def rename(self, old: str, new: str) -> None:
        self._operate()
        names, name = self._place(old)
        if name not in names:
            raise StorageFailed(f"cannot rename {old}: it is not there")
        node = names.pop(name)
        target, last = self._place(new)
        target[last] = node

    def symlink(self, target: str, path: str) -> None:
        self._operate()
        names, name = self._place(path)
        if name in names:
            raise StorageFailed(f"cannot link {path}: it exists")
        names[name] = Inode(target=target)

    def readlink(self, path: str) -> str | None:
        self._look(path)
        node = self._find(path, follow=False)
        return node.target or None if node is not None else None

    def make_folder(self, path: str) -> None:
        self._operate()
        node = self.root
        for part in path.split("/"):
            assert node.names is not None
            node = node.names.setdefault(part, folder())

    def names(self, folder: str) -> tuple[str, ...]:
        self._look(folder)
        node = self._find(folder)
        return tuple(sorted(node.names)) if node is not None and node.names is not None else ()

    def remove(self, path: str) -> None:
        self._operate()
        parent = self._find(path.rpartition("/")[0] or ".")
        if parent is not None and parent.names is not None:
            parent.names.pop(path.rpartition("/")[2], None)

    def sync_folder(self, path: str) -> None:
        self._operate()
        node = self._find(path)
        if node is None or node.names is None:
            raise StorageFailed(f"cannot sync {path}: it is no folder")
        node.kept_names = dict(node.names)

    def size(self, path: str) -> int | None:
        self._look(path)
        node = self._find(path, follow=False)
        return None if node is None or node.names is not None or node.target else len(node.data)

    def sha256(self, path: str) -> str:
        self._look(path)
        node = self._find(path)
        if node is None or node.names is not None:
            raise FileUnreadable(f"cannot read {path}")
        return hashlib.sha256(node.data).hexdigest()

    def read_part(self, path: str, offset: int, size: int) -> bytes:
        self._look(path)
        node = self._find(path)
        if node is None or node.names is not None or offset + size > len(node.data):
            raise FileUnreadable(f"cannot read {path}")
        return node.data[offset : offset + size]

    def copy_part(self, path: str, offset: int, size: int, target: str) -> None:
        data = self.read_part(path, offset, size)
        self.write(target, data)

    def seal(self, path: str) -> None:
        self._operate()
        node = self._find(path)
        if node is None:
            raise StorageFailed(f"cannot seal {path}: it is not there")
        node.kept = node.data

    def free_bytes(self) -> int:
        self._look(".")
        return self.free

    def held_bytes(self, folder: str) -> int:
        return sum(self.size(f"{folder}/{name}") or 0 for name in self.names(folder))

    def after_cut(self, chance: random.Random) -> FakeDisk:
        """What the next boot finds."""
        return FakeDisk(_survive(self.root, chance))

    def _grow(self, node: Inode, old: bytes, more: bytes) -> None:
        """A write in two halves, then its sync: a cut may fall between any of them."""
        self._operate()
        node.data = old + more[: len(more) // 2]
        self._operate()
        node.data = old + more
        self._operate()
        node.kept = node.data

    def _find(self, path: str, *, follow: bool = True) -> Inode | None:
        node: Inode | None = self.root
        parts = [part for part in path.split("/") if part not in ("", ".")]
        for at, part in enumerate(parts):
            if node is None or node.names is None:
                return None
            node = node.names.get(part)
            if node is not None and node.target and (follow or at + 1 < len(parts)):
                node = self._find(_resolve("/".join(parts[:at]), node.target))
        return node

    def _place(self, path: str) -> tuple[dict[str, Inode], str]:
        parent = self._find(path.rpartition("/")[0] or ".")
        if parent is None or parent.names is None:
            raise StorageFailed(f"cannot write {path}: its folder is not there")
        return parent.names, path.rpartition("/")[2]


def _resolve(base: str, target: str) -> str:
    parts = [part for part in base.split("/") if part]
    for part in target.split("/"):
        if part == "..":
            parts = parts[:-1]
        else:
            parts.append(part)
    return "/".join(parts)


def _survive(node: Inode, chance: random.Random) -> Inode:
    if node.target:
        return Inode(target=node.target)
    if node.names is None:
        data = node.kept
        if data is None or (data != node.data and chance.random() < 0.5):
            data = node.data[: chance.randint(0, len(node.data))]
        return Inode(data, data)
    chosen = dict(node.kept_names)
    for name in {*node.names, *node.kept_names}:
        if node.names.get(name) is not node.kept_names.get(name) and chance.random() < 0.5:
            chosen.pop(name, None)
            if name in node.names:
                chosen[name] = node.names[name]
    names = {name: _survive(inner, chance) for name, inner in chosen.items()}
    return Inode(names=names, kept_names=dict(names))
