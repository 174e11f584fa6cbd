"""Reads how much memory is free and how short it is: /proc, control groups, PSI.

Only reads. A control group's limit counts with those above it, v2 and v1; what it holds of
files can be dropped and counts as free. Files that are missing or odd are passed over.
Formats: kernel Documentation/filesystems/proc.rst, admin-guide/cgroup-v2.rst, accounting/psi.rst.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stoker.events.memory import MemoryFacts, Pressure
from stoker.units import Bytes

_PSI: Final = re.compile(r"(some|full) avg10=(\d+\.?\d*)")
_UNLIMITED: Final = 1 << 60
_MOST_BYTES: Final = 1 << 16


class LinuxMemory:
    """``pressure_file`` is read instead of the kernel's, where one is named."""

    def __init__(self, root: Path = Path("/"), pressure_file: str = "") -> None:
        self._root = root
        self._pressure_file = pressure_file

    def facts(self, pid: int = 0) -> MemoryFacts:
        """Of the device, narrowed by the control groups of a process (0 = our own)."""
        rows = dict(self._pairs(self._root / "proc/meminfo"))
        total = 1024 * rows.get("MemTotal", 0)
        free = 1024 * rows.get("MemAvailable", rows.get("MemFree", 0))
        best = MemoryFacts(Bytes(total), Bytes(free))
        for name, room in self._groups(pid):
            if room < best.available_bytes:
                best = MemoryFacts(Bytes(total), Bytes(max(0, room)), f"limit of {name}")
        return best

    def pressure(self, pid: int = 0) -> Pressure | None:
        """The worse of the whole machine's and the control group's; None = nobody tells."""
        paths = [self._root / "proc/pressure/memory"]
        if self._pressure_file:
            paths = [Path(self._pressure_file)]
        else:
            paths += [folder / "memory.pressure" for folder in self._v2(pid)[:1]]
        found = [seen for path in paths if (seen := _psi(_text(path))) is not None]
        if not found:
            return None
        return Pressure(max(p.some_pct for p in found), max(p.full_pct for p in found))

    def _groups(self, pid: int) -> Iterator[tuple[str, int]]:
        """(name, bytes left) of every control group above the process that has a limit."""
        for folder in self._v2(pid):
            held = _number(_text(folder / "memory.current"))
            limits = [_number(_text(folder / name)) for name in ("memory.max", "memory.high")]
            given = [limit for limit in limits if limit is not None]
            if held is not None and given:
                files = self._files(folder, "inactive_file", "active_file")
                yield f"/{folder.name}", min(given) - held + files
        for folder in self._v1(pid):
            limit = _number(_text(folder / "memory.limit_in_bytes"))
            held = _number(_text(folder / "memory.usage_in_bytes"))
            if limit is not None and held is not None and limit < _UNLIMITED:
                files = self._files(folder, "total_inactive_file", "total_active_file")
                yield f"/{folder.name}", limit - held + files

    def _files(self, folder: Path, *names: str) -> int:
        rows = dict(self._pairs(folder / "memory.stat"))
        return sum(rows.get(name, 0) for name in names)

    def _v2(self, pid: int) -> list[Path]:
        mounts = (self._root / "sys/fs/cgroup", self._root / "sys/fs/cgroup/unified")
        mount = next((m for m in mounts if (m / "cgroup.controllers").is_file()), mounts[0])
        return _upwards(mount, self._path_of(pid, ""))

    def _v1(self, pid: int) -> list[Path]:
        return _upwards(self._root / "sys/fs/cgroup/memory", self._path_of(pid, "memory"))

    def _path_of(self, pid: int, controller: str) -> str | None:
        """The process's group as /proc/PID/cgroup has it: ``number:controllers:/path``."""
        text = _text(self._root / "proc" / (str(pid) if pid else "self") / "cgroup")
        for row in text.splitlines():
            _, _, rest = row.partition(":")
            controllers, _, path = rest.partition(":")
            if controller in controllers.split(","):
                return path
        return None

    def _pairs(self, path: Path) -> Iterator[tuple[str, int]]:
        for row in _text(path).splitlines():
            words = row.replace(":", " ").split()
            if len(words) >= 2 and words[1].isdigit():
                yield words[0], int(words[1])


def _upwards(mount: Path, path: str | None) -> list[Path]:
    """The group's folder and those above it, up to the mount. In a container the path may be
    of the world outside: what is not there is passed over.
    """
    if path is None:
        return []
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    folders = (mount.joinpath(*parts[:length]) for length in range(len(parts), -1, -1))
    return [folder for folder in folders if folder.is_dir()]


def _psi(text: str) -> Pressure | None:
    found = {name: float(value) for name, value in _PSI.findall(text)}
    if "some" not in found:
        return None
    return Pressure(min(found["some"], 100.0), min(found.get("full", 0.0), 100.0))


def _number(text: str) -> int | None:
    word = text.strip()
    return int(word) if word.isdigit() else None  # "max" = no limit


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("ascii", "replace")
    except OSError:
        return ""
