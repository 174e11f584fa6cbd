"""cpufreq policies below a root: their steps, the effective limit, our cap.

Only ``scaling_max_freq`` is ever written, and always with a value of the table. It is one
slot shared with everybody, so nothing here remembers what is "ours": the journal does.
"""

from __future__ import annotations

import os
from pathlib import Path

from stoker.drivers.attribute import (
    ReadText,
    WriteText,
    fault_name,
    read_attribute,
    write_attribute,
)
from stoker.events.thermal import FrequencyPolicy
from stoker.units import KiloHertz

GRID_KHZ = 100_000
_LARGEST_GRID = 64


class Cpufreq:
    """Port ``FrequencyPolicies`` on devices/system/cpu/cpufreq."""

    def __init__(
        self, root: Path, read: ReadText = read_attribute, write: WriteText = write_attribute
    ) -> None:
        self._directory = root / "devices" / "system" / "cpu" / "cpufreq"
        self._read = read
        self._write = write
        self._faults: dict[str, str] = {}
        self._limits: dict[str, Path] = {}  # scaling_max_freq by policy: each tick reads it

    def discover(self) -> tuple[FrequencyPolicy, ...]:
        try:
            names = [path.name for path in self._directory.iterdir()]
        except OSError:
            return ()
        numbers = sorted(
            int(name.removeprefix("policy"))
            for name in names
            if name.startswith("policy") and name.removeprefix("policy").isdecimal()
        )
        found = (self._policy(f"policy{number}") for number in numbers)
        return tuple(policy for policy in found if policy is not None)

    def cap_khz(self, policy: FrequencyPolicy) -> KiloHertz | None:
        khz = self._number(self._limit(policy.name))
        return khz if khz is not None and khz > 0 else None

    def set_cap(self, policy: FrequencyPolicy, cap: KiloHertz) -> bool:
        path = self._limit(policy.name)
        self._faults.pop(policy.name, None)
        try:
            self._write(path, f"{int(cap)}\n")
        except OSError as error:
            self._faults[policy.name] = f"{path}: {fault_name(error)}"
            return False
        return True

    def fault(self, policy: FrequencyPolicy) -> str:
        return self._faults.get(policy.name, "")

    def _policy(self, name: str) -> FrequencyPolicy | None:
        low = self._number(self._path(name, "cpuinfo_min_freq"))
        high = self._number(self._path(name, "cpuinfo_max_freq"))
        if low is None or high is None or not 0 < low <= high:
            return None
        cpus = self._numbers(name, "related_cpus") or self._numbers(name, "affected_cpus")
        listed = self._numbers(name, "scaling_available_frequencies")
        steps = sorted({KiloHertz(khz) for khz in listed if low <= khz <= high})
        return FrequencyPolicy(
            name=name,
            cpus=tuple(cpus),
            min_khz=low,
            max_khz=high,
            steps_khz=tuple(steps) or _grid(low, high),
            writable=os.access(self._limit(name), os.W_OK),
        )

    def _limit(self, name: str) -> Path:
        path = self._limits.get(name)
        if path is None:
            path = self._limits[name] = self._path(name, "scaling_max_freq")
        return path

    def _path(self, name: str, attribute: str) -> Path:
        return self._directory / name / attribute

    def _number(self, path: Path) -> KiloHertz | None:
        try:
            return KiloHertz(int(self._read(path)))
        except (OSError, ValueError):
            return None

    def _numbers(self, name: str, attribute: str) -> list[int]:
        try:
            text = self._read(self._path(name, attribute))
        except OSError:
            return []
        return [int(word) for word in text.replace(",", " ").split() if word.isdecimal()]


def _grid(low: KiloHertz, high: KiloHertz) -> tuple[KiloHertz, ...]:
    """intel_pstate and others list no frequencies: round steps between the limits."""
    step = GRID_KHZ
    while (high - low) // step >= _LARGEST_GRID:
        step *= 2
    first = (low // step + 1) * step
    return (
        (low, *(KiloHertz(khz) for khz in range(first, high, step)), high)
        if low < high
        else (high,)
    )
