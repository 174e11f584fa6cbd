"""The cpuset partition of stoker.slice: made, read back, released. Root only.

systemd is asked to set AllowedCPUs= (it would undo a cpuset that it does not know of); the
partition file is written here, and believed only when it reads back.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from stoker.core.cpu_choice import format_list, parse_list
from stoker.errors import StokerError

SLICE: Final = "stoker.slice"
_WAIT_S: Final = 3.0
_STEP_S: Final = 0.02
_VALID: Final = ("root", "isolated")
_REPAIRS: Final = 1


@dataclass(frozen=True, slots=True)
class Result:
    """``state``: partition | cpuset (ours, but shared) | none. ``kernel``: what it reads;
    ``losses``: how often the kernel took the partition away since it was made."""

    state: str
    cpus: str
    kernel: str
    reason: str = ""
    losses: int = 0


class CpuSetter(Protocol):
    def set_allowed_cpus(self, unit: str, cpus: Sequence[int]) -> None: ...


class Partition:
    """``root``: the cgroup v2 tree."""

    def __init__(
        self,
        systemd: CpuSetter,
        root: Path = Path("/sys/fs/cgroup"),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._systemd = systemd
        self._root = root
        self._group = root / SLICE
        self._sleep = sleep

    def apply(self, cpus: Sequence[int], kind: str = "root") -> Result:
        """``kind``: root, or isolated (no load balancing), which the kernel insists on for CPUs
        that isolcpus= named at boot."""
        wanted = format_list(cpus)
        if "cpuset" not in self._controllers():
            return Result("none", "", "", "this kernel has no cpuset for cgroup v2 here")
        try:
            self._systemd.set_allowed_cpus(SLICE, cpus)
        except StokerError as error:
            return Result("none", "", "", error.message)
        if not self._wait_for_cpus(wanted):
            return Result("none", "", "", "the slice has no cpuset of its own")
        try:
            (self._group / "cpuset.cpus.partition").write_text(f"{kind}\n")
        except OSError as error:
            return Result("cpuset", wanted, self._kernel(), f"partition: {error.strerror}")
        kernel = self._kernel()  # a write succeeds even when the partition is invalid
        if kernel != kind:
            self._write_member()
            return Result("cpuset", wanted, kernel, "the kernel refused the partition")
        return Result("partition", wanted, kernel)

    def again(self, before: Result) -> Result | None:
        """A partition that the kernel took away (a CPU went offline, another one was made): made
        anew once, the second time the CPUs are shared for good. None: nothing was lost."""
        if before.state != "partition" or self._kernel() in _VALID:
            return None
        lost, losses = self._kernel(), before.losses + 1
        if losses <= _REPAIRS:
            kind = "isolated" if before.kernel == "isolated" else "root"
            result = self.apply(parse_list(before.cpus), kind)
            reason = result.reason or f"it was lost once and made anew: {lost}"
            return replace(result, reason=reason, losses=losses)
        self._write_member()
        reason = f"the partition was lost {losses} times: {lost}"
        return Result("cpuset", before.cpus, self._kernel(), reason, losses)

    def release(self) -> None:
        self._write_member()
        with contextlib.suppress(StokerError):
            self._systemd.set_allowed_cpus(SLICE, ())

    def _wait_for_cpus(self, wanted: str) -> bool:
        """systemd answers before it has written."""
        for _ in range(round(_WAIT_S / _STEP_S)):
            with contextlib.suppress(OSError):
                if (self._group / "cpuset.cpus").read_text().strip() == wanted:
                    return True
            self._sleep(_STEP_S)
        return False

    def _controllers(self) -> list[str]:
        try:
            return (self._root / "cgroup.controllers").read_text().split()
        except OSError:
            return []

    def _write_member(self) -> None:
        with contextlib.suppress(OSError):
            (self._group / "cpuset.cpus.partition").write_text("member\n")

    def _kernel(self) -> str:
        try:
            return (self._group / "cpuset.cpus.partition").read_text().strip()
        except OSError as error:
            return error.strerror or "unreadable"
