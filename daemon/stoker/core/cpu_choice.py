"""Which CPUs the language model gets for itself, or is held to where it has none.

The fastest ones, one of each physical core, never CPU 0 (interrupts and everybody else), none
that isolcpus= gave to somebody else. Reading the topology is ``drivers/cpu_topology``'s business.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from stoker.errors import ConfigInvalid

_AS_FAST: Final = 0.8  # of the fastest: a "prime" core and its neighbours go together
_ENOUGH: Final = 4  # CPUs that fill the memory bus of one chip: more help writing tokens little
_LARGEST_CPU: Final = 8191


@dataclass(frozen=True, slots=True)
class Cpu:
    """``capacity`` is cpu_capacity of the kernel (0 = it does not say); ``max_khz`` likewise.
    ``cluster`` -1 = none; ``cache``: the CPUs on its last shared cache; ``isolated``: by isolcpus=
    at boot; ``kind`` of a hybrid Intel chip: core | atom | "".
    """

    number: int
    capacity: int = 0
    max_khz: int = 0
    siblings: tuple[int, ...] = ()
    cluster: int = -1
    cache: tuple[int, ...] = ()
    isolated: bool = False
    kind: str = ""


def choose(cpus: Sequence[Cpu], wanted: str = "auto") -> tuple[int, ...]:
    """``wanted``: auto, none or a list such as "2-3,5". () = none. Raises ConfigInvalid."""
    if wanted == "none":
        return ()
    if wanted != "auto":
        return _named(cpus, wanted)
    able = _able(cpus)
    chosen = _near(_fastest(able))
    if len(chosen) == 1:  # a lone prime core is slower than it and the next ones together
        chosen += _near(_fastest([cpu for cpu in able if cpu not in chosen]))
    return tuple(sorted(cpu.number for cpu in chosen))


def held(cpus: Sequence[Cpu]) -> tuple[int, ...]:
    """The CPUs for affinity masks where there is no cpuset: those of ``choose`` where slower ones
    are left to everybody else. () = all are alike: a mask would only keep threads from free CPUs.
    """
    chosen = choose(cpus)
    slower = {cpu.number for cpu in _able(cpus)} - {cpu.number for cpu in _fastest(_able(cpus))}
    return chosen if slower - set(chosen) else ()


def hold(pin: str, cpus: Sequence[Cpu], threads: int) -> tuple[tuple[int, ...], str]:
    """The mask for a runner that has no cpuset, or why it gets none. ``pin``: runner.pin;
    ``cpus``: those that it may use; ``threads``: how many were configured, 0 = none were."""
    if pin not in ("auto", "set"):
        return (), f"runner.pin is {pin}"
    mask = held(cpus) if pin == "auto" else choose(cpus)
    if not mask and pin == "set":
        return (), "there is no CPU to spare"
    if not mask:
        return (), "its CPUs are alike: masks would only keep threads from free ones"
    if pin == "auto" and threads > len(mask):
        return (), f"{threads} threads are configured, and {len(mask)} CPUs are fast"
    return mask, ""


def isolated(cpus: Sequence[Cpu], chosen: Iterable[int]) -> bool:
    """All chosen ones are without load balancing since boot: the kernel makes no other partition
    of them, and each thread must be pinned to one."""
    alone = {cpu.number for cpu in cpus if cpu.isolated}
    return bool(alone) and set(chosen) <= alone


def _named(cpus: Sequence[Cpu], wanted: str) -> tuple[int, ...]:
    chosen = parse_list(wanted)
    online = {cpu.number for cpu in cpus}
    if missing := set(chosen) - online:
        raise _refused(wanted, f"CPU {min(missing)} is not online")
    if not online - set(chosen):
        raise _refused(wanted, "the system needs a CPU too")
    alone = {cpu.number for cpu in cpus if cpu.isolated}
    if alone & set(chosen) and set(chosen) - alone:
        mixed = f"CPU {min(alone & set(chosen))} is isolated (isolcpus=) and others are not"
        raise _refused(wanted, mixed)
    return chosen


def _able(cpus: Sequence[Cpu]) -> list[Cpu]:
    """One of each core, without CPU 0's."""
    left = {0, *(number for cpu in cpus if cpu.number == 0 for number in cpu.siblings)}
    cores = [cpu for cpu in cpus if cpu.number == min((*cpu.siblings, cpu.number))]
    return [cpu for cpu in cores if cpu.number not in left and not cpu.isolated]


def _fastest(cpus: Sequence[Cpu]) -> list[Cpu]:
    """The efficient cores of a hybrid chip may run as fast as 0.8 of the others, and are slower
    all the same. Equal capacities say nothing (kernels write 1024 for all): clocks may."""
    quick = [cpu for cpu in cpus if cpu.kind != "atom"] or list(cpus)
    capacities = {cpu.capacity for cpu in quick}
    told = len(capacities) > 1 and 0 not in capacities
    speeds = [cpu.capacity if told else cpu.max_khz for cpu in quick]
    if 0 in speeds:
        return quick  # unknown is not slow
    least = _AS_FAST * max(speeds, default=0)
    return [cpu for cpu, speed in zip(quick, speeds, strict=True) if speed >= least]


def _near(cpus: list[Cpu]) -> list[Cpu]:
    """Those that share a last cache (a cluster, where no cache is told), if there are enough of
    them in one: a barrier across two costs more than the others bring."""
    groups: dict[Hashable, list[Cpu]] = {}
    for cpu in cpus:
        groups.setdefault(cpu.cache or cpu.cluster, []).append(cpu)
    best = max(groups.values(), key=len, default=[])  # CPU 0 is missing in its own
    return best if len(best) >= _ENOUGH else cpus


def parse_list(text: str) -> tuple[int, ...]:
    """The kernel's list format. Raises ConfigInvalid."""
    numbers: set[int] = set()
    for part in text.replace(" ", "").split(","):
        low, dash, high = part.partition("-")
        high = high if dash else low
        if not low.isdecimal() or not high.isdecimal():
            raise _refused(text, 'neither "auto", "none" nor a list such as 2-3,5')
        first, last = int(low), int(high)
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


def _refused(text: str, reason: str) -> ConfigInvalid:
    return ConfigInvalid(f"cannot use STOKER_CPUS={text}: {reason}")
