"""Where the pinned arms of ``rt probe`` run: in the partition of stoker.slice, where there is one
and we may enter it, else on a CPU that others use too. Makes no partition and changes none.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stoker_client.errors import StokerClientError

SLICE: Final = "stoker.slice"
_GROUP: Final = f"sys/fs/cgroup/{SLICE}"
_VALID: Final = ("root", "isolated")


@dataclass(frozen=True, slots=True)
class Place:
    """``cpu`` to pin to, ``before``: words that start a program there. ``partition``: its CPUs as a
    kernel list, "" = the CPU is shared; ``note`` says why."""

    cpu: int
    before: tuple[str, ...] = ()
    partition: str = ""
    note: str = ""


ANYWHERE: Final = Place(-1)


def find(wanted: int | None, root: Path = Path("/")) -> Place:
    """``wanted``: a CPU, None = the last one: the first serves interrupts. Raises StokerClientError
    for one that we can't use."""
    own = tuple(sorted(os.sched_getaffinity(0)))
    cpus, kernel = _read(root, "cpuset.cpus.effective"), _read(root, "cpuset.cpus.partition")
    alone = _numbers(cpus) if kernel in _VALID else ()
    refused = _refused(root) if alone else ""
    if alone and not refused and (wanted is None or wanted in alone):
        # A scope is started by ourselves, so that it has our files and our priority's limits.
        before = ("systemd-run", "--scope", "--quiet", "--collect", f"--slice={SLICE}", "--")
        return Place(alone[-1] if wanted is None else wanted, before, cpus)
    if wanted is not None and wanted not in own:
        usable = ", ".join(map(str, sorted({*own, *(() if refused else alone)})))
        raise StokerClientError(
            "invalid-request", f"cannot pin to CPU {wanted}: this process may use {usable}",
            hint=refused if wanted in alone else "",
        )  # fmt: skip
    if not alone:
        note = (
            f"there is no partition ({SLICE} {f'reads {kernel!r}' if kernel else 'is not there'})"
        )
    else:
        note = refused or f"CPU {wanted} is not in the partition of {SLICE} ({cpus})"
    return Place(own[-1] if wanted is None else wanted, note=note)


def _refused(root: Path) -> str:
    if os.geteuid() != 0:
        return f"only root may enter the partition of {SLICE}: sudo stokerctl rt probe"
    if not (root / "run/systemd/system").is_dir() or shutil.which("systemd-run") is None:
        return f"systemd-run, which would enter the partition of {SLICE}, is not usable here"
    return ""


def _read(root: Path, name: str) -> str:
    try:
        return (root / _GROUP / name).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _numbers(text: str) -> tuple[int, ...]:
    """Of the kernel's list format; () where it is none."""
    found: list[int] = []
    for part in text.split(","):
        low, dash, high = part.partition("-")
        high = high if dash else low
        if not low.isdecimal() or not high.isdecimal():
            return ()
        found += range(int(low), int(high) + 1)
    return tuple(sorted(found))
