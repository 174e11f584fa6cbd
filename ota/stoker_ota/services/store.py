"""What is installed: content-addressed objects, generations, ``current`` and ``previous``.

Nothing is changed in place. A generation becomes current by one rename of a symlink; the
order of syncs makes every cut leave the old set or the new one. Which is wanted is the
machine's decision; here is only how it is done on a disk.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Final

from stoker_ota.core import archive, strict_json
from stoker_ota.core import floors as floors_core
from stoker_ota.core import history as history_core
from stoker_ota.core import journal as journal_core
from stoker_ota.core.floors import Floors
from stoker_ota.errors import BadDocument, FileUnreadable, ResultHash
from stoker_ota.ports.disk import Disk
from stoker_ota.values.deployment import Journal, Member, Phase

FOLDERS: Final = ("trust", "objects/sha256", "staging", "generations")
JOURNAL, FLOOR, TWIN = "state.json", "trust/floor.json", "trust/floor.json.bak"
LINES, EARLIER = "history.jsonl", "history.1.jsonl"
OFFER: Final = "offer-"
"""Of a document: the manifest under way, by its hash."""
TRIAL: Final = ".trial"
"""Beside a generation, as long as it has not been committed."""
TREE: Final = ".d"
"""Beside a runtime's archive, in its generation: its files, as the runner loads them."""
MAX_SET_BYTES: Final = 64 << 10
MAX_HISTORY_BYTES: Final = 1 << 20
MAX_DOCUMENT_BYTES: Final = 4 << 20


class Store:
    """One writer at a time; the caller holds the lock."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        for folder in FOLDERS:
            disk.make_folder(folder)
        for folder in (".", "objects"):  # their names must outlive the first power cut
            disk.sync_folder(folder)

    # the journal and the floors

    def journal(self) -> Journal:
        """What was under way. An unreadable one is put aside and told from the tree."""
        with contextlib.suppress(BadDocument, FileUnreadable):
            data = self._disk.read(JOURNAL, journal_core.MAX_JOURNAL_BYTES)
            return self._told_from_the_tree() if data is None else journal_core.decode(data)
        self._disk.rename(JOURNAL, f"{JOURNAL}.broken")
        return self._told_from_the_tree()

    def _told_from_the_tree(self) -> Journal:
        """A set whose trial had not ended is left: nobody knows whether it is well."""
        current, previous = self.current(), self.previous()
        if self._disk.size(_trial(current)) is None:
            return Journal(previous=previous)
        return Journal(
            Phase.ROLLING_BACK, generation=current, previous=previous, code="unhealthy",
            reason="the journal was lost while this set was tried",
        )  # fmt: skip

    def save_journal(self, journal: Journal) -> None:
        self._replace(JOURNAL, journal_core.encode(journal))

    def floors(self) -> Floors:
        """Of both copies the higher values; a lost pair starts again at nothing. FileUnreadable
        when the disk gives neither: floors that are there must not begin anew.
        """
        copies: list[Floors] = []
        silent: FileUnreadable | None = None
        for path in (FLOOR, TWIN):
            try:
                data = self._disk.read(path, floors_core.MAX_FLOOR_BYTES)
                copies += [floors_core.decode(data)] if data is not None else []
            except BadDocument:
                continue
            except FileUnreadable as error:
                silent = error
        if silent is not None and not copies:
            raise silent
        return functools.reduce(floors_core.merge, copies, Floors())

    def save_floors(self, floors: Floors) -> None:
        """One copy after the other: a cut damages one at most."""
        data = floors_core.encode(floors)
        self._replace(FLOOR, data)
        self._replace(TWIN, data)

    def document(self, name: str) -> bytes | None:
        """A signed document as it was received: ``trust``, ``catalog`` or a deployment's."""
        return self._disk.read(f"trust/{name}.json", MAX_DOCUMENT_BYTES)

    def save_document(self, name: str, data: bytes) -> None:
        self._replace(f"trust/{name}.json", data)

    def set_aside(self, name: str) -> None:
        """A damaged document stays for whoever looks for the cause; it is not read any more."""
        self._disk.rename(f"trust/{name}.json", f"trust/{name}.json.broken")

    # objects

    def object_path(self, sha256: str) -> str:
        """Relative to the store."""
        return f"objects/sha256/{sha256[:2]}/{sha256}"

    def has(self, sha256: str) -> bool:
        return self._disk.size(self.object_path(sha256)) is not None

    def adopt(self, path: str, sha256: str) -> None:
        """A finished file of the staging folder becomes an object; its hash is read back.

        Raises ResultHash (the file is removed: nothing of it may be used).
        """
        if self._disk.sha256(path) != sha256:
            self._disk.remove(path)
            raise ResultHash(f"cannot keep {path}: its content is not {sha256[:12]}…")
        target = self.object_path(sha256)
        folder = target.rpartition("/")[0]
        self._disk.make_folder(folder)
        self._disk.seal(path)
        self._disk.sync_folder("objects/sha256")
        self._disk.rename(path, target)
        self._disk.sync_folder(folder)

    # generations

    def current(self) -> int:
        """0 = what the package brought."""
        return self._number("current")

    def previous(self) -> int:
        return self._number("previous")

    def members(self, generation: int) -> tuple[Member, ...]:
        """Raises BadDocument, FileUnreadable when the generation is damaged or gone."""
        data = self._disk.read(f"generations/{generation}/set.json", MAX_SET_BYTES)
        if data is None:
            raise FileUnreadable(f"cannot read generation {generation}: it is not there")
        value = strict_json.loads(data, max_bytes=MAX_SET_BYTES, what="set")
        try:
            return tuple(Member(**item) for item in value["members"])  # type: ignore[index]
        except (TypeError, KeyError) as error:
            raise BadDocument(f"cannot read generation {generation}: {error}") from error

    def manifest(self, generation: int) -> bytes | None:
        """The signed bytes that made it; None when it is gone (or the package's, 0)."""
        return self._disk.read(f"generations/{generation}/manifest.json", MAX_DOCUMENT_BYTES)

    def make_generation(self, manifest: bytes, members: Iterable[Member]) -> int:
        """A complete new generation that is not active. Its objects must be there."""
        listed = list(members)
        missing = [m.name for m in listed if not m.where and not self.has(m.sha256)]
        if missing:
            raise FileUnreadable(f"cannot make a generation: {missing[0]} has no object")
        number = max((0, *self._generations())) + 1
        making = f"generations/{number}.new"
        self._disk.remove(making)
        self._disk.make_folder(making)
        value: Mapping[str, object] = {
            "schema": 1,
            "members": [asdict(item) for item in listed],
        }
        self._disk.write(f"{making}/set.json", strict_json.dumps(value))
        self._disk.write(f"{making}/manifest.json", manifest)
        for item in listed:
            target = item.where or f"../../{self.object_path(item.sha256)}"
            self._disk.symlink(target, f"{making}/{item.name}")
            if item.kind == "runtime":
                archived = item.where or self.object_path(item.sha256)
                self._unpack(archived, f"{making}/{item.name}{TREE}")
        self._disk.sync_folder(making)
        self._disk.rename(making, f"generations/{number}")
        self._disk.sync_folder("generations")
        return number

    def _unpack(self, path: str, folder: str) -> None:
        """A runtime's libraries as files. BadDocument: nothing but what the maker writes."""
        size = self._disk.size(path)
        if size is None:
            raise FileUnreadable(f"cannot unpack {path}: it is gone")
        found = archive.entries(lambda at, count: self._disk.read_part(path, at, count), size)
        self._disk.make_folder(folder)
        for entry in found:
            self._disk.copy_part(path, entry.offset, entry.size, f"{folder}/{entry.name}")
        self._disk.sync_folder(folder)

    def activate(self, generation: int, *, previous: int) -> None:
        """``previous`` first: at every moment both links lead to whole sets."""
        if generation:
            self.members(generation)
        self._point("previous", previous)
        self._point("current", generation)

    def mark_trial(self, generation: int) -> None:
        """From before it is current until ``end_trial``, which only a commit calls."""
        self._disk.write(_trial(generation), b"")
        self._disk.sync_folder("generations")

    def end_trial(self, generation: int) -> None:
        self._disk.remove(_trial(generation))
        self._disk.sync_folder("generations")

    def collect(self, journal: Journal) -> None:
        """Removes what neither current, previous nor the update under way needs. Raises what
        cannot be read: what a kept set needs is known, or no object goes.
        """
        kept = {self.current(), self.previous(), journal.generation}
        for name in self._disk.names("generations"):
            number = name.removesuffix(TRIAL)
            if not number.isdecimal() or int(number) not in kept:
                self._disk.remove(f"generations/{name}")
        staged = journal.offer.manifest if journal.offer is not None else ""
        for name in self._disk.names("staging"):
            if name != staged:
                self._disk.remove(f"staging/{name}")
        under_way = () if journal.offer is None else (staged, journal.offer.deployment)
        offered = {f"{OFFER}{name}.json" for name in under_way}
        for name in self._disk.names("trust"):
            if name.startswith(OFFER) and name not in offered:
                self._disk.remove(f"trust/{name}")
        if journal.offer is None:  # an update under way has objects that no generation names yet
            sets = [self.members(number) for number in self._generations()]
            self._drop_objects({item.sha256 for members in sets for item in members})

    # the history

    def record(self, record: Mapping[str, object]) -> None:
        """One line after the others; a full file becomes ``.1``, the one before it goes."""
        data = self._lines(LINES)
        found = history_core.read(data)
        line, _ = history_core.line(record, found.tip)
        if data is None or found.damaged:  # kept as it is: what was changed must not vanish
            self._disk.rename(LINES, f"{LINES}.broken")
        elif len(data) + len(line) > MAX_HISTORY_BYTES:
            self._disk.rename(LINES, EARLIER)
        elif found.good_bytes < len(data):  # half a line of a power cut: it must not join ours
            self._replace(LINES, data[: found.good_bytes] + line)
            return
        self._disk.append(LINES, line)
        self._disk.sync_folder(".")

    def history(self) -> history_core.History:
        """Of both files, as one chain; not whole as long as a broken one lies beside them."""
        old = history_core.read(self._lines(EARLIER))
        new = history_core.read(self._lines(LINES), old.tip)
        broken = self._disk.size(f"{LINES}.broken") is not None
        return replace(
            new, records=old.records + new.records, whole=old.whole and new.whole and not broken
        )

    def _lines(self, path: str) -> bytes | None:
        """None when the disk does not give them."""
        try:
            return self._disk.read(path, MAX_HISTORY_BYTES * 2) or b""
        except FileUnreadable:
            return None

    def _replace(self, path: str, data: bytes) -> None:
        """The old file or the new one, never a mixture."""
        self._disk.write(f"{path}.new", data)
        self._disk.rename(f"{path}.new", path)
        self._disk.sync_folder(path.rpartition("/")[0] or ".")

    def _point(self, link: str, generation: int) -> None:
        if generation == 0:
            self._disk.remove(link)
        else:
            self._disk.remove(f"{link}.new")
            self._disk.symlink(f"generations/{generation}", f"{link}.new")
            self._disk.rename(f"{link}.new", link)
        self._disk.sync_folder(".")

    def _number(self, link: str) -> int:
        target = self._disk.readlink(link) or ""
        number = target.removeprefix("generations/")
        return int(number) if number.isdecimal() else 0

    def _generations(self) -> list[int]:
        return [int(name) for name in self._disk.names("generations") if name.isdecimal()]

    def _drop_objects(self, needed: set[str]) -> None:
        for folder in self._disk.names("objects/sha256"):
            for name in self._disk.names(f"objects/sha256/{folder}"):
                if name not in needed:
                    self._disk.remove(f"objects/sha256/{folder}/{name}")


def _trial(generation: int) -> str:
    return f"generations/{generation}{TRIAL}"
