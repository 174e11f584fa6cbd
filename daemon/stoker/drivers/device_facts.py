"""What updates are judged against: this device's clock, its identity, its model files.

Reads only. Hashing a model takes seconds a gigabyte: it is done when it is asked for, and
remembered for as long as the file's inode, time and size stay the same.
"""

from __future__ import annotations

import ctypes
import hashlib
import hmac
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import psutil

import stoker
from stoker.config.schema import DeviceConfig
from stoker.drivers.regular_file import read_regular
from stoker.ports.system import StateFile

TIMESYNC: Final = Path("/run/systemd/timesync/synchronized")  # man systemd-timesyncd, "FILES"
MACHINE_ID: Final = Path("/etc/machine-id")
APPLICATION_ID: Final = "50665259f44b425089c606b0addee5b8"
"""Drawn once. Another one would give every device another id: never change it."""
_UNSYNC: Final = 0x0040  # STA_UNSYNC of linux/timex.h
_TIMEX_WORDS: Final = 128  # struct timex has 208 bytes on 64 bits; a rest for newer kernels
_CHUNK: Final = 1 << 20
_MACHINE_ID_BYTES: Final = 64


class DeviceClock:
    """The wall clock, and whether anything keeps it."""

    def now(self) -> datetime:
        """Whole seconds, UTC."""
        return datetime.now(UTC).replace(microsecond=0)

    def synchronised(self) -> bool:
        """What timesyncd says, or else the kernel; a sandbox that forbids to ask is a no."""
        return TIMESYNC.exists() or _kernel_synchronised()

    def built(self) -> datetime:
        """When this program was packaged: no clock is right that is before it."""
        file = Path(stoker.__file__)
        try:
            return datetime.fromtimestamp(int(file.stat().st_mtime), UTC)
        except OSError:
            return datetime.fromtimestamp(0, UTC)

    def local_hour(self) -> int:
        return time.localtime().tm_hour


class DeviceIdentity:
    """Strings that manifests' targets are compared with; see docs/ota.md."""

    def __init__(
        self, configured: Callable[[], DeviceConfig], machine_id: Path = MACHINE_ID
    ) -> None:
        self._configured, self._machine_id = configured, machine_id

    def device_id(self) -> str:
        """The configured one, or one of this machine and this program alone: it tells nobody
        the machine's id. As sd_id128_get_machine_app_specific(3): 32 hex digits.
        """
        configured = self._configured().id
        return configured or _of_this_machine(self._machine_id)

    def labels(self) -> Mapping[str, str]:
        """With the region, which targets ask for as a label."""
        configured = self._configured()
        region = {"region": configured.region} if configured.region else {}
        return {**configured.labels, **region}

    def arch(self) -> str:
        return platform.machine()

    def system(self) -> str:
        """``ID`` of os-release, such as debian."""
        try:
            return platform.freedesktop_os_release().get("ID", "linux")
        except OSError:
            return "linux"

    def libc(self) -> str:
        return platform.libc_ver()[0] or "unknown"

    def python_abi(self) -> str:
        return sys.implementation.cache_tag or ""

    def ram_mib(self) -> int:
        return int(psutil.virtual_memory().total) >> 20

    def free_memory_bytes(self) -> int:
        """MemAvailable of the device: the unit that applies deltas is not in our control group."""
        return int(psutil.virtual_memory().available)


def _of_this_machine(path: Path) -> str:
    try:
        machine = bytes.fromhex(read_regular(path, _MACHINE_ID_BYTES).strip().decode())
    except (OSError, ValueError):  # none, or "uninitialized" of a first boot
        machine = platform.node().encode()
    number = bytearray(hmac.digest(machine, bytes.fromhex(APPLICATION_ID), "sha256")[:16])
    number[6] = number[6] & 0x0F | 0x40  # the marks of a random UUID, version 4
    number[8] = number[8] & 0x3F | 0x80
    return number.hex()


class KnownFiles:
    """Hashes of files that deltas may start from, remembered in a state file."""

    def __init__(self, paths: Callable[[], Iterable[str]], notes: StateFile) -> None:
        self._paths, self._notes = paths, notes
        self._lock = threading.Lock()
        self._known: dict[str, list[object]] | None = None

    def by_hash(self) -> Mapping[str, str]:
        """Hash → path of those that can be read."""
        with self._lock:
            if self._known is None:
                loaded = self._notes.load()
                self._known = {k: v for k, v in loaded.items() if isinstance(v, list)}
            fresh: dict[str, list[object]] = {}
            for path in dict.fromkeys(self._paths()):
                found = _fingerprint(path, self._known.get(path))
                if found is not None:
                    fresh[path] = found
            if fresh != self._known:
                self._known = fresh
                self._notes.save(fresh)
            return {str(found[-1]): path for path, found in fresh.items()}


def _fingerprint(path: str, kept: list[object] | None) -> list[object] | None:
    """[inode, time in ns, bytes, SHA-256]; None when it cannot be read."""
    digest = hashlib.sha256()
    try:
        with Path(path).open("rb") as file:
            facts = os.fstat(file.fileno())
            head: list[object] = [facts.st_ino, facts.st_mtime_ns, facts.st_size]
            if kept is not None and kept[:-1] == head:
                return kept
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError:
        return None
    return [*head, digest.hexdigest()]


def _kernel_synchronised() -> bool:
    """adjtimex(2) with modes 0 only reads."""
    try:
        call = ctypes.CDLL(None, use_errno=True).adjtimex
        words = (ctypes.c_int * _TIMEX_WORDS)()
        if call(ctypes.byref(words)) < 0:
            return False
    except (OSError, AttributeError):
        return False
    return not words[_STATUS_WORD] & _UNSYNC


# modes (and padding), offset, freq, maxerror, esterror, then status: five longs in.
_STATUS_WORD: Final = 5 * ctypes.sizeof(ctypes.c_long) // ctypes.sizeof(ctypes.c_int)
