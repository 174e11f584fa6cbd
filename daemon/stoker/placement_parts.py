"""Wiring of CPU placement: from what stoker-slice made and what this machine has to the options of
the runner, its thread count and the reason that ``stokerctl rt show`` gives.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from stoker.config.schema import Config
from stoker.core.cpu_choice import Cpu, hold, isolated, parse_list
from stoker.drivers import runner_unit
from stoker.drivers.cpu_share import read_cpu_share
from stoker.drivers.cpu_topology import read_cpus
from stoker.drivers.cpus import usable_cpus
from stoker.ports.doors import CpuShare

FIFO_PRIORITY = 5
_CPUSETS = ("partition", "cpuset")


def runs_units(config: Config) -> bool:
    """Runners are units of systemd's, in stoker.slice."""
    if config.runner.launcher != "auto":
        return config.runner.launcher != "child"
    service = "NOTIFY_SOCKET" in os.environ and config.daemon.bus == "system"
    return service and runner_unit.installed()


@dataclass(frozen=True, slots=True)
class Placing:
    """``options`` of the runner, ``threads`` at most. ``unheld``: why no mask holds its threads;
    "" = one does, or a cpuset. ``no_fifo``: why they are not real-time though that is configured.
    """

    options: tuple[str, ...]
    threads: int
    unheld: str = ""
    no_fifo: str = ""


def placing(
    config: Config,
    share: Callable[[], CpuShare] = read_cpu_share,
    read: Callable[[], Iterable[Cpu]] = read_cpus,
) -> Placing:
    """By itself the runner is pinned one to one only on CPUs that nobody else wants: elsewhere a
    pinned thread waits for its CPU while another one idles, and all threads wait for it. FIFO needs
    a partition always."""
    runner = config.runner
    made = share() if runs_units(config) else CpuShare()
    there, usable = tuple(read()), os.sched_getaffinity(0)
    mask: tuple[int, ...] = ()
    unheld = ""
    if made.state not in _CPUSETS:
        mine = [cpu for cpu in there if cpu.number in usable]
        mask, unheld = hold(runner.pin, mine, max(runner.threads, runner.threads_batch))
    alone = made.state == "partition" or (
        made.state == "cpuset" and bool(made.cpus) and isolated(there, parse_list(made.cpus))
    )
    options: tuple[str, ...] = ("--pin", _pin(runner.pin, alone, held=bool(mask)))
    if mask:
        options += ("--cpus", ",".join(map(str, mask)), f"--nice={runner.nice}")
    no_fifo = ""
    if runner.realtime == "fifo" and made.state == "partition":
        options += ("--fifo", str(FIFO_PRIORITY))
    elif runner.realtime == "fifo":
        why = made.reason or "the runner has no CPUs of its own"
        no_fifo = f"there is no partition ({why})"
    return Placing(options, _threads(config, made, mask), unheld, no_fifo)


def _pin(wanted: str, alone: bool, *, held: bool) -> str:
    if held:
        return "set"
    if wanted == "auto":
        return "one-to-one" if alone else "off"
    return "off" if wanted == "set" else wanted  # a cpuset holds them as well


def _threads(config: Config, made: CpuShare, mask: tuple[int, ...]) -> int:
    """As configured, else the CPUs that the runner will have."""
    if config.runner.threads:
        return config.runner.threads
    if made.state in _CPUSETS and made.cpus:
        return min(len(parse_list(made.cpus)), os.cpu_count() or 1)
    usable = usable_cpus()
    return min(len(mask) or usable, usable)
