"""Gives back the original values of caps that the journal calls ours.

``restore_caps`` serves the daemon's stop, its next start, and ExecStopPost: it needs only
the ports. It never touches a value that is not ours.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stoker.core.cap_records import last_known, merged, of_boot
from stoker.errors import StokerError
from stoker.events.thermal import CapRecord, FrequencyPolicy
from stoker.ports.system import Clock
from stoker.ports.thermal import (
    CapJournal,
    FrequencyPolicies,
    HeatInventory,
    PowerMeters,
    ThermalSensors,
    ThrottleFlags,
)
from stoker.units import KiloHertz, Seconds

log = logging.getLogger(__name__)

SETTLE_S = 0.005
SETTLE_TRIES = 10
"""The kernel applies a limit within a few milliseconds; on full CPUs it may take some more."""

FAULTS = (OSError, StokerError)
"""What a driver may throw; anything else is a bug, and still must not end the loop."""


@dataclass(frozen=True, slots=True)
class ThermalPorts:
    """``boot_id`` tells a journal of this boot from an old one; ``asleep_s`` is how long the
    device has slept since it booted (CLOCK_BOOTTIME − CLOCK_MONOTONIC); ``rest`` sleeps;
    ``hasten`` lets the calling thread go before others."""

    sensors: ThermalSensors
    policies: FrequencyPolicies
    journal: CapJournal
    clock: Clock
    boot_id: str
    meters: PowerMeters | None = None
    firmware: ThrottleFlags | None = None
    inventory: HeatInventory | None = None
    asleep_s: Callable[[], Seconds] = lambda: Seconds(0.0)
    rest: Callable[[float], None] = time.sleep
    hasten: Callable[[], object] = lambda: None


@dataclass(frozen=True, slots=True)
class Restored:
    """``outcome``: restored | foreign (somebody else's value, left alone) | gone (or offline: its
    lines stay) | failed."""

    policy: str
    outcome: str


def restore_caps(ports: ThermalPorts) -> tuple[Restored, ...]:
    """Undo every cap that the journal calls ours. Lines stay until that is done (the policy may be
    offline) or the boot is another one. OSError where the journal cannot be read."""
    return undo(ports)[0]


def undo(
    ports: ThermalPorts, known: Sequence[CapRecord] = ()
) -> tuple[tuple[Restored, ...], tuple[CapRecord, ...]]:
    """``restore_caps`` with lines that are ``known`` beside the journal's, should it be lost; and
    the lines that stay."""
    records = merged(_load(ports.journal, known), known)
    lines = of_boot(records, ports.boot_id)  # another boot: the kernel forgot the cap already
    by_name = {policy.name: policy for policy in _discover(ports, lines)}
    results: list[Restored] = []
    kept: list[CapRecord] = []
    for name in dict.fromkeys(record.policy for record in lines):
        mine = tuple(record for record in lines if record.policy == name)
        policy = by_name.get(name)
        outcome, left = ("gone", mine) if policy is None else _restore(ports, policy, mine)
        kept += left
        results.append(Restored(name, outcome))
        log.info("cap on %s: %s", name, outcome)
    if records:
        shorten(ports.journal, kept)
    return tuple(results), tuple(kept)


def _load(journal: CapJournal, known: Sequence[CapRecord]) -> tuple[CapRecord, ...]:
    try:
        return journal.load()
    except FAULTS as error:
        if not known:
            raise
        log.warning("cannot read the cap journal: %s; what is remembered is undone", error)
        return ()


def _discover(ports: ThermalPorts, lines: Sequence[CapRecord]) -> tuple[FrequencyPolicy, ...]:
    try:
        return ports.policies.discover() if lines else ()
    except FAULTS as error:
        log.warning("cannot list frequency policies: %s", error)
        return ()


def shorten(journal: CapJournal, kept: Sequence[CapRecord]) -> None:
    """To what is still needed."""
    try:
        if kept:
            journal.write(kept)
        else:
            journal.clear()
    except FAULTS as error:
        # Harmless: what stays too long names values that are not there any more.
        log.warning("cannot shorten the cap journal: %s", error)


def goes_back(line: CapRecord, policy: FrequencyPolicy) -> KiloHertz:
    """What to write for a value of ours. Where nobody had limited the slot, the top: it may be
    higher than it was then (turbo was off)."""
    return max(line.original_khz, policy.max_khz) if line.free else line.original_khz


def settled(
    ports: ThermalPorts, policy: FrequencyPolicy, done: Callable[[KiloHertz], bool]
) -> KiloHertz | None:
    """The readback once it is ``done``, or as it is after some patience: the kernel applies a
    write in a thread of its own. None = it cannot be read."""
    for _ in range(SETTLE_TRIES):
        now = ports.policies.cap_khz(policy)
        if now is None or done(now):
            return now
        ports.rest(SETTLE_S)
    return ports.policies.cap_khz(policy)


def await_khz(ports: ThermalPorts, policy: FrequencyPolicy, khz: KiloHertz) -> None:
    """Until what was given back shows, unless another limit is lower: a value of ours that is
    read later would be taken for the owner's."""
    settled(ports, policy, lambda now: now == khz)


def _restore(
    ports: ThermalPorts, policy: FrequencyPolicy, lines: tuple[CapRecord, ...]
) -> tuple[str, tuple[CapRecord, ...]]:
    """The outcome, and the lines that must stay."""
    try:
        return _give_back(ports, policy, lines)
    except FAULTS as error:
        log.warning("cannot give %s back: %s", policy.name, error)
        return "failed", lines


def _give_back(
    ports: ThermalPorts, policy: FrequencyPolicy, lines: tuple[CapRecord, ...]
) -> tuple[str, tuple[CapRecord, ...]]:
    policies = ports.policies
    now = policies.cap_khz(policy)
    if now is None:
        return "gone", lines
    line = next((line for line in reversed(lines) if line.ours_khz == now), None)
    if line is not None:
        return _written(ports, policy, goes_back(line, policy), lines)
    if now > max(line.ours_khz for line in lines):
        return "foreign", ()
    # Not ours, and lower: another limit may hold it down with our value still in the slot, or
    # somebody wrote it. If it rises with our write, it was in the slot.
    sure = last_known(lines, policy.name)
    goal = policy.max_khz if sure is None else goes_back(sure, policy)
    proof = goal if goal > now else policy.max_khz
    if not policies.set_cap(policy, proof):
        return "failed", lines
    back = settled(ports, policy, lambda khz: khz > now)
    if back is not None and back <= now:
        return ("restored", ()) if goal == proof else _written(ports, policy, goal, lines)
    if back is not None and policies.set_cap(policy, now):
        await_khz(ports, policy, now)  # the next look must not take our proof for theirs
        return "foreign", ()
    return "failed", (*lines, CapRecord(policy.name, now, proof, ports.boot_id))


def _written(
    ports: ThermalPorts,
    policy: FrequencyPolicy,
    khz: KiloHertz,
    lines: tuple[CapRecord, ...],
) -> tuple[str, tuple[CapRecord, ...]]:
    if not ports.policies.set_cap(policy, khz):
        return "failed", lines
    await_khz(ports, policy, khz)
    return "restored", ()
