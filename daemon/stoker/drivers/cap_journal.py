"""The cap journal: which cap is ours and what was there before, durable before any write.

A JSON file in the runtime directory, written to a temporary, synced, renamed, and the
directory synced. Whoever starts next, or ExecStopPost, can undo what a killed daemon left.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from stoker.drivers.regular_file import read_regular
from stoker.events.thermal import CapRecord
from stoker.units import KiloHertz
from stoker_ota.drivers.folder_sync import sync_folder

VERSION = 1
_LARGEST_FILE = 1 << 20
_IS_NO_JOURNAL = {0, errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EISDIR}


def read_boot_id(path: Path = Path("/proc/sys/kernel/random/boot_id")) -> str:
    """Caps do not outlive a boot; a journal of another boot is void. "" when unknown."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


class FileCapJournal:
    """Port ``CapJournal``. ``load`` of a damaged file is empty; OSError where the file is there and
    cannot be read now. ``write`` raises OSError, for then no cap may be written."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> tuple[CapRecord, ...]:
        try:
            data = json.loads(read_regular(self._path, _LARGEST_FILE))
            if data["version"] != VERSION:
                return ()
            return tuple(_record(item) for item in data["caps"])
        except OSError as error:
            if error.errno in _IS_NO_JOURNAL:
                return ()
            raise
        except (ValueError, KeyError, TypeError, RecursionError):
            return ()

    def write(self, records: Sequence[CapRecord]) -> None:
        data = {
            "version": VERSION,
            "caps": [
                {
                    "policy": record.policy,
                    "original_khz": record.original_khz,
                    "ours_khz": record.ours_khz,
                    "boot_id": record.boot_id,
                    "free": record.free,
                }
                for record in records
            ],
        }
        directory = self._path.parent
        directory.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=directory)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(json.dumps(data).encode())
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self._path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
        sync_folder(directory)

    def clear(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
            sync_folder(self._path.parent)


def _record(item: object) -> CapRecord:
    if not isinstance(item, dict):
        raise ValueError("a cap must be an object")
    policy, boot_id = item["policy"], item["boot_id"]
    original, ours = item["original_khz"], item["ours_khz"]
    if not isinstance(policy, str) or not isinstance(boot_id, str):
        raise ValueError("policy and boot_id must be strings")
    for value in (original, ours):
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise ValueError("frequencies must be whole numbers above 0")
    free = item.get("free") is True  # not in the lines of older versions
    return CapRecord(policy, KiloHertz(original), KiloHertz(ours), boot_id, free)
