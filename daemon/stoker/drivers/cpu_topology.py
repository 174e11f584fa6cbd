"""Reads from sysfs what kind of CPUs this machine has. Chooses nothing; what cannot be read is
left at its "unknown", as kernels and boards differ in what they tell.

Formats: Documentation/admin-guide/cputopology.rst and Documentation/ABI/testing/sysfs-devices-
system-cpu of Linux; cpu_core and cpu_atom are the two PMUs of a hybrid Intel chip.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from stoker.core.cpu_choice import Cpu, parse_list
from stoker.errors import StokerError

_NO_CLUSTER: Final = 65535  # what the kernel writes for "none"
_SHARED_FROM_LEVEL: Final = 2
_KINDS: Final = ("core", "atom")


def read_cpus(root: Path = Path("/sys")) -> tuple[Cpu, ...]:
    """The CPUs that are online."""
    base = root / "devices/system/cpu"
    isolated = set(_list(base / "isolated"))
    kinds = {n: kind for kind in _KINDS for n in _list(root / f"devices/cpu_{kind}/cpus")}
    return tuple(
        _cpu(base / f"cpu{number}", number, isolated=number in isolated, kind=kinds.get(number, ""))
        for number in _list(base / "online")
    )


def _cpu(folder: Path, number: int, *, isolated: bool, kind: str) -> Cpu:
    cluster = _number(folder / "topology/cluster_id", -1)
    return Cpu(
        number=number,
        capacity=_number(folder / "cpu_capacity", 0),
        max_khz=_number(folder / "cpufreq/cpuinfo_max_freq", 0),
        siblings=_list(folder / "topology/thread_siblings_list"),
        cluster=-1 if cluster == _NO_CLUSTER else cluster,
        cache=_last_cache(folder / "cache"),
        isolated=isolated,
        kind=kind,
    )


def _last_cache(folder: Path) -> tuple[int, ...]:
    """The CPUs on the same L3 (on the same L2 where there is no L3); () = it is not told, or the
    CPU has it for itself."""
    found: dict[int, tuple[int, ...]] = {}
    for index in sorted(folder.glob("index*")):
        level = _number(index / "level", 0)
        if level >= _SHARED_FROM_LEVEL:
            found[level] = _list(index / "shared_cpu_list")
    sharing = found[max(found)] if found else ()
    return sharing if len(sharing) > 1 else ()


def _list(path: Path) -> tuple[int, ...]:
    try:
        return parse_list(path.read_text().strip())
    except (OSError, ValueError, StokerError):  # an empty list is no list to the parser
        return ()


def _number(path: Path, unknown: int) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return unknown
