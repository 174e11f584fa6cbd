"""Writes caps with the journal first, and gives the original values back.

``restore_caps`` serves the daemon's stop, its next start, and ExecStopPost: it needs only
the ports. It never touches a value that is not ours.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stoker.core.cap_records import after_release, before_write, ours
from stoker.core.caps import SetCap
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

FAULTS = (OSError, StokerError)
"""What a driver may throw; anything else is a bug, and still must not end the loop."""


@dataclass(frozen=True, slots=True)
class ThermalPorts:
    """``boot_id`` tells a journal of this boot from an old one; ``asleep_s`` is how long the
    device has slept since it booted (CLOCK_BOOTTIME − CLOCK_MONOTONIC)."""

    sensors: ThermalSensors
    policies: FrequencyPolicies
    journal: CapJournal
    clock: Clock
    boot_id: str
    meters: PowerMeters | None = None
    firmware: ThrottleFlags | None = None
    inventory: HeatInventory | None = None
    asleep_s: Callable[[], Seconds] = lambda: Seconds(0.0)


@dataclass(frozen=True, slots=True)
class Restored:
    """``outcome``: restored | foreign (somebody else's value, left alone) | gone | failed."""

    policy: str
    outcome: str


def restore_caps(ports: ThermalPorts) -> tuple[Restored, ...]:
    """Undo every cap the journal calls ours; then clear it (kept where a write failed)."""
    records = ports.journal.load()
    by_name = {policy.name: policy for policy in ports.policies.discover()}
    results: list[Restored] = []
    for name in dict.fromkeys(record.policy for record in records):
        values = ours(records, name, ports.boot_id)
        if not values:
            continue  # another boot: the kernel forgot the cap already
        original = [r.original_khz for r in records if r.policy == name][-1]
        policy = by_name.get(name)
        outcome = "gone" if policy is None else _restore(ports.policies, policy, original, values)
        results.append(Restored(name, outcome))
        log.info("cap on %s: %s", name, outcome)
    failed = {r.policy for r in results if r.outcome == "failed"}
    if failed:
        ports.journal.write([r for r in records if r.policy in failed])
    elif records:
        ports.journal.clear()
    return tuple(results)


def _restore(
    policies: FrequencyPolicies,
    policy: FrequencyPolicy,
    original: KiloHertz,
    values: Sequence[KiloHertz],
) -> str:
    now = policies.cap_khz(policy)
    if now is None:
        return "gone"
    if now not in values and now >= min(values):
        return "foreign"
    if not policies.set_cap(policy, original):
        return "failed"
    if now in values:
        return "restored"
    # Lower than anything of ours: the kernel may cap for its own reasons, with our value
    # still in the slot, or somebody wrote it. If it rises now, it was in the slot.
    if policies.cap_khz(policy) == original and now != original:
        policies.set_cap(policy, now)
        return "foreign"
    return "restored"


class CapWriter:
    """Applies ``SetCap`` actions; remembers the journal's lines."""

    def __init__(self, ports: ThermalPorts) -> None:
        self._ports = ports
        self._records: tuple[CapRecord, ...] = ()

    def apply(self, action: SetCap, policy: FrequencyPolicy) -> bool:
        """False = not written: the kernel or the journal refused."""
        ports = self._ports
        coming = before_write(self._records, action, ports.boot_id)
        try:
            ports.journal.write(coming)
        except FAULTS as error:
            log.warning("cannot write the cap journal: %s; no cap is set", error)
            return False
        self._records = coming
        if not ports.policies.set_cap(policy, action.cap_khz):
            return False
        if action.release:
            self._forget(action.policy)
        return True

    def _forget(self, name: str) -> None:
        self._records = after_release(self._records, name)
        try:
            if self._records:
                self._ports.journal.write(self._records)
            else:
                self._ports.journal.clear()
        except FAULTS as error:
            # Harmless: the line names a value equal to the original.
            log.warning("cannot shorten the cap journal: %s", error)

    def restore(self) -> tuple[Restored, ...]:
        results = restore_caps(self._ports)
        self._records = ()
        return results
