"""Saved states of conversations in the runner's scratch directory: bounded, atomic, checked.

Files are written and read by threads of their own, written complete or not at all, mode 0600;
the least recently used go first. A file that is damaged or of no use any more is removed with a log
line. It decides nothing about what is worth saving.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import mmap
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from stoker.runner import state_format as form
from stoker.runner.state_format import Facts, Head, StateFormatError

SUFFIX: Final = ".state"
MAX_FILES: Final = 1024
_PIECE: Final = 4 * 1024 * 1024
_PART: Final = ".part"
_TRIED: Final = ".tried"
_log = logging.getLogger(__name__)

Run = Callable[[Callable[[], None]], "threading.Thread | None"]


def in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, name="states", daemon=True)
    thread.start()
    return thread


class Fetch:
    """A state on its way into memory. ``done`` may be asked at any time, of any thread.

    Slow storage takes seconds for what is checked in a moment: nobody waits for it.
    """

    __slots__ = ("_going", "done", "head", "payload", "reason")

    def __init__(self, head: Head) -> None:
        self.head = head
        self.payload: memoryview | None = None
        self.reason = ""  # why the file is of no use
        self.done = False
        self._going = True

    def stop(self) -> None:
        """Nobody wants it any more; the thread ends at its next piece."""
        self._going = False

    def run(self, path: Path) -> None:
        try:
            self.payload = self._read(path)
        except (OSError, ValueError, StateFormatError) as error:
            self.reason = str(error)
        finally:
            self.done = True

    def _read(self, path: Path) -> memoryview | None:
        """The engine's bytes, all checked. Raises OSError, ValueError, StateFormatError."""
        with path.open("rb") as file:
            data = file.read(self.head.payload_at)
            found = form.parse(data, os.fstat(file.fileno()).st_size)
            # read, not mapped: a bad block is an error here and would be a signal there
            payload = memoryview(mmap.mmap(-1, max(found.payload_bytes, 1)))[: found.payload_bytes]
            for at in range(0, found.payload_bytes, _PIECE):
                piece = payload[at : at + _PIECE]
                if file.readinto(piece) != len(piece):
                    raise StateFormatError("it is cut off")
                if not self._going:
                    return None
        form.check(data, payload)
        return payload


class StateStore:
    """``fingerprint`` and ``kind`` say which files are of use now; ``run`` does what takes time."""

    def __init__(
        self, folder: Path, *, limit_bytes: int, fingerprint: str, kind: str, run: Run = in_thread
    ) -> None:
        self._folder, self.limit_bytes = folder, limit_bytes
        self._fingerprint, self._kind, self._run = fingerprint, kind, run
        self._lock = threading.Lock()
        self._heads: dict[str, Head] = {}  # by the file's name
        self._pending: Facts | None = None  # of the file being written
        self._revoked = False  # it is not wanted any more
        self._writer: threading.Thread | None = None
        self.written = self.restored = self.dropped = 0

    @property
    def busy(self) -> bool:
        """A file is being written: one at a time, so that memory stays bounded."""
        return self._pending is not None

    @property
    def files(self) -> int:
        return len(self._heads)

    def open(self) -> None:
        """Look at what there is. Raises OSError when the directory cannot be used."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in self._folder.iterdir():
            if path.name.endswith((_PART, _TRIED)):
                _remove_if_unused(path)
            elif path.name.endswith(SUFFIX):
                self._look_at(path)

    def owners(self) -> list[tuple[str, str]]:
        """(scope, conversation) of every file, also those of other models."""
        with self._lock:
            return [(head.facts.scope, head.facts.keep) for head in self._heads.values()]

    def find(self, scope: str, keep: str, variant: str) -> Head | None:
        """The state of a conversation that fits the loaded model."""
        facts = Facts(self._fingerprint, self._kind, scope, keep, variant)
        with self._lock:
            head = self._heads.get(_name(facts))
        return head if head is not None and head.facts == facts else None

    def fetch(self, head: Head) -> Fetch:
        """Begin to read a state."""
        fetch = Fetch(head)
        path = self._folder / _name(head.facts)
        try:
            self._run(lambda: fetch.run(path))
        except RuntimeError as error:  # no thread to be had
            _log.warning("cannot read a saved state: %s", error)
            fetch.done = True
        return fetch

    def take(self, fetch: Fetch) -> memoryview | None:
        """What was read; None when the file is gone or damaged.

        Until ``proven`` the file does not count: should the engine die of it, the next runner
        does not try it again.
        """
        path = self._folder / _name(fetch.head.facts)
        if fetch.payload is not None:
            try:
                path.rename(path.with_suffix(_TRIED))
            except OSError as error:
                fetch.payload, fetch.reason = None, str(error)
        if fetch.reason:
            self.drop(fetch.head, fetch.reason)
        return fetch.payload

    def proven(self, head: Head) -> None:
        """The engine took it: it counts again, as just used."""
        path = self._folder / _name(head.facts)
        with contextlib.suppress(OSError):
            path.with_suffix(_TRIED).rename(path)
            os.utime(path)
        self.restored += 1

    def drop(self, head: Head, reason: str) -> None:
        name = _name(head.facts)
        _log.warning("saved state %s is not used: %s", name, reason)
        with self._lock:
            self._drop(name)
            with contextlib.suppress(OSError):
                (self._folder / name).with_suffix(_TRIED).unlink(missing_ok=True)
        self.dropped += 1

    def write(self, facts: Facts, tokens: list[int], payload: memoryview) -> bool:
        """Begin to save a state; False when another one is under way or it is too large."""
        if self.busy or payload.nbytes > self.limit_bytes:
            return False
        self._revoked, self._pending = False, facts
        try:
            self._writer = self._run(lambda: self._write(facts, tokens, payload))
        except RuntimeError as error:  # no thread to be had
            self._pending = None
            _log.warning("cannot save a state: %s", error)
            return False
        return True

    def finish(self, limit_s: float | None = None) -> None:
        """Wait for the file being written, at most so long."""
        if self._writer is not None:
            self._writer.join(None if limit_s is None else max(limit_s, 0.0))

    def forget(self, scope: str, keep: str = "") -> int:
        """Remove what is saved of a scope, or of one conversation in it; how many files."""
        with self._lock:
            self._look_for_strangers()
            names = [n for n, head in self._heads.items() if _is_of(head.facts, scope, keep)]
            for name in names:
                self._drop(name)
            pending = self._pending
            self._revoked = self._revoked or (pending is not None and _is_of(pending, scope, keep))
        return len(names)

    def total_bytes(self) -> int:
        return sum(size for _, size, _ in self._listing())

    def _write(self, facts: Facts, tokens: list[int], payload: memoryview) -> None:
        name = _name(facts)
        part = self._folder / f"{name}.{os.getpid()}{_PART}"
        try:
            head = form.pack(facts, tokens, payload)
            self._make_room(len(head) + payload.nbytes, name)
            fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                for piece in (memoryview(head), payload):
                    _write_all(file.fileno(), piece)
                os.fsync(file.fileno())
                self._commit(part, name, form.parse(head, len(head) + payload.nbytes))
        except (OSError, ValueError) as error:
            _log.warning("cannot save a state: %s", error)
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
        finally:
            self._pending = None

    def _commit(self, part: Path, name: str, head: Head) -> None:
        with self._lock:
            if self._revoked:
                part.unlink()
                return
            part.rename(self._folder / name)
            self._heads[name] = head
            self.written += 1
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _make_room(self, size: int, name: str) -> None:
        """The bound counts what is there: two runners may share the directory for a while."""
        listing = self._listing()
        total, count = sum(item[1] for item in listing), len(listing)
        for _, old_bytes, old in sorted(listing, key=lambda item: (item[2] == name, item[0])):
            if total + size <= self.limit_bytes and count < MAX_FILES:
                return
            if old.endswith(_PART):  # another runner is writing it
                continue
            with self._lock:
                self._drop(old)
            total, count = total - old_bytes, count - 1
        if total + size > self.limit_bytes:
            raise OSError(f"{size} bytes are more than the {self.limit_bytes} that may be kept")

    def _listing(self) -> list[tuple[int, int, str]]:
        """(last use, bytes, name) of every file of ours."""
        out = []
        for entry in os.scandir(self._folder):
            with contextlib.suppress(OSError):
                facts = entry.stat(follow_symlinks=False)
                out.append((facts.st_mtime_ns, facts.st_size, entry.name))
        return [item for item in out if item[2].endswith((SUFFIX, _PART))]

    def _drop(self, name: str) -> None:
        """With the lock held."""
        self._heads.pop(name, None)
        with contextlib.suppress(OSError):
            (self._folder / name).unlink(missing_ok=True)

    def _look_for_strangers(self) -> None:
        """An older runner may have saved something at its end, after we looked."""
        with contextlib.suppress(OSError):
            for path in self._folder.iterdir():
                if path.name.endswith(SUFFIX) and path.name not in self._heads:
                    self._look_at(path)

    def _look_at(self, path: Path) -> None:
        """Remember a file, or remove it when nobody can ever use it."""
        try:
            with path.open("rb") as file:
                fixed = file.read(form.FIXED_BYTES)
                data = fixed + file.read(form.head_bytes(fixed) - form.FIXED_BYTES)
                head = form.parse(data, os.fstat(file.fileno()).st_size)
            if _name(head.facts) != path.name:
                raise StateFormatError("its name is not of what it holds")
            if head.facts.fingerprint == self._fingerprint and head.facts.kind != self._kind:
                raise StateFormatError(f"it is of another build or cell type: {head.facts.kind}")
        except (OSError, StateFormatError) as error:
            _log.warning("saved state %s is removed: %s", path.name, error)
            self.dropped += 1
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            return
        self._heads[path.name] = head


def _name(facts: Facts) -> str:
    """Of model, scope and conversation: one file each, and none tells whose it is."""
    owner = "\0".join((facts.fingerprint, facts.scope, facts.keep))
    return hashlib.sha256(owner.encode("utf-8", "surrogatepass")).hexdigest()[:40] + SUFFIX


def _is_of(facts: Facts, scope: str, keep: str) -> bool:
    return facts.scope == scope and keep in ("", facts.keep)


def _write_all(fd: int, data: memoryview) -> None:
    data = data.cast("B")
    while data:
        data = data[os.write(fd, data[: 1 << 24]) :]


def _remove_if_unused(path: Path) -> None:
    """Its writer holds a lock; what a dead one left is cleaned away."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
