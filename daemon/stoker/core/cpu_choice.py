"""Which CPUs the language model gets for itself.

The fastest ones, one of each physical core, never CPU 0 (interrupts and everybody else).
Reading the topology is ``drivers/partition``'s business.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from stoker.errors import ConfigInvalid

_AS_FAST: Final = 0.8  # of the fastest: a "prime" core and its neighbours go together
_LARGEST_CPU: Final = 8191


@dataclass(frozen=True, slots=True)
class Cpu:
    """``capacity`` is cpu_capacity of the kernel (0 = it does not say); ``max_khz`` likewise."""

    number: int
    capacity: int = 0
    max_khz: int = 0
    siblings: tuple[int, ...] = ()


def choose(cpus: Sequence[Cpu], wanted: str = "auto") -> tuple[int, ...]:
    """``wanted``: auto, none or a list such as "2-3,5". () = none. Raises ConfigInvalid."""
    online = {cpu.number for cpu in cpus}
    if wanted == "none":
        return ()
    if wanted != "auto":
        chosen = parse_list(wanted)
        if missing := set(chosen) - online:
            raise _refused(wanted, f"CPU {min(missing)} is not online")
        if not online - set(chosen):
            raise _refused(wanted, "the system needs a CPU too")
        return chosen
    left = {0, *(number for cpu in cpus if cpu.number == 0 for number in cpu.siblings)}
    cores = [cpu for cpu in cpus if cpu.number == min((*cpu.siblings, cpu.number))]
    able = [cpu for cpu in cores if cpu.number not in left]
    fastest = max((_speed(cpu) for cpu in able), default=0)
    return tuple(sorted(cpu.number for cpu in able if _speed(cpu) >= _AS_FAST * fastest))


def parse_list(text: str) -> tuple[int, ...]:
    """The kernel's list format. Raises ConfigInvalid."""
    numbers: set[int] = set()
    for part in text.replace(" ", "").split(","):
        low, _, high = part.partition("-")
        if not low.isdecimal() or not (high or low).isdecimal():
            raise _refused(text, 'neither "auto", "none" nor a list such as 2-3,5')
        first, last = int(low), int(high or low)
        if not first <= last <= _LARGEST_CPU:
            raise _refused(text, f"{part} is no range of CPUs")
        numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))


def format_list(cpus: Iterable[int]) -> str:
    """1, 2, 3, 5 -> "1-3,5"."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and cpu == parts[-1][-1] + 1:
            parts[-1].append(cpu)
        else:
            parts.append([cpu])
    return ",".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else f"{p[0]}" for p in parts)


def _speed(cpu: Cpu) -> int:
    return cpu.capacity or cpu.max_khz


def _refused(text: str, reason: str) -> ConfigInvalid:
    return ConfigInvalid(f"cannot use STOKER_CPUS={text}: {reason}")
