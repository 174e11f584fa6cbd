"""Writes caps, with the journal first; finds out what the slot holds beside us where it must.

``scaling_max_freq`` reads as the lowest of all requests (docs/thermal.md). A readback that is no
value of ours may be the owner's setting in the slot or another limit; only a write tells:
what rises with it was in the slot. Only what was in the slot ever goes back into it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stoker.core.cap_records import (
    after_release,
    before_write,
    held,
    is_probe,
    last_known,
    of_boot,
    without_probes,
)
from stoker.core.caps import Applied, CapState, Held, SetCap
from stoker.core.thermal_plan import GRANT
from stoker.events.thermal import CapRecord, FrequencyPolicy
from stoker.services.caps import (
    FAULTS,
    Restored,
    ThermalPorts,
    await_khz,
    goes_back,
    settled,
    shorten,
    undo,
)
from stoker.units import KiloHertz

log = logging.getLogger(__name__)
END_S = 5.0


class _RefusedError(Exception):
    """A write that was not done; the text says why."""


@dataclass(frozen=True, slots=True)
class _Owner:
    """What goes back into the slot. ``foreign``: it was written there while we capped."""

    khz: KiloHertz
    free: bool = False
    probed: bool = False
    foreign: bool = False


class CapWriter:
    """Applies ``SetCap`` actions; remembers the journal's lines. The loop's thread; ``end`` is
    for any."""

    def __init__(self, ports: ThermalPorts) -> None:
        self._ports = ports
        self._known: tuple[CapRecord, ...] | None = None  # None: the journal was not read yet
        self._slot: dict[str, KiloHertz] = {}  # the last value that the kernel took from us
        self._lock = threading.Lock()
        self._ended = False

    def held(self) -> Mapping[str, Held]:
        """Of each policy what the journal calls ours."""
        try:
            return held(self._records())
        except FAULTS:
            return {}

    def apply(self, action: SetCap, policy: FrequencyPolicy) -> Applied:
        """Never raises for a fault of a driver."""
        with self._lock:
            try:
                if self._ended:
                    raise _RefusedError("the loop has ended")
                return self._apply(action, policy)
            except _RefusedError as refused:
                return Applied(str(refused))
            except FAULTS as error:
                log.warning("cannot set a cap on %s: %s", action.policy, error)
                return Applied(f"{type(error).__name__}: {error}")

    def restore(self) -> tuple[Restored, ...]:
        """Undo what is ours; what could not be undone stays known."""
        with self._lock:
            return self._restore()

    def end(self) -> tuple[Restored, ...]:
        """``restore``, and no cap is ever written again. Where a write hangs in the kernel nothing
        is done: what the journal says is undone by the next start, or ExecStopPost."""
        self._ended = True
        if not self._lock.acquire(timeout=END_S):
            log.warning("a cap is still being written: left to stokerd --restore-caps")
            return ()
        try:
            return self._restore()
        finally:
            self._lock.release()

    def _restore(self) -> tuple[Restored, ...]:
        self._slot.clear()
        results, self._known = undo(self._ports, self._known or ())
        return results

    def _records(self) -> tuple[CapRecord, ...]:
        if self._known is None:
            self._known = of_boot(self._ports.journal.load(), self._ports.boot_id)
        return self._known

    def _apply(self, action: SetCap, policy: FrequencyPolicy) -> Applied:
        owner = self._owner(policy)
        if action.release or action.cap_khz >= owner.khz:
            self._write(policy, owner, owner.khz)
            await_khz(self._ports, policy, owner.khz)
            self._forget(policy.name)
        else:
            self._write(policy, owner, action.cap_khz)
            if owner.probed:  # the owner may choose the value of the probe next
                await_khz(self._ports, policy, action.cap_khz)
                self._keep(without_probes(self._records(), policy.name))
        news = owner.foreign or owner.khz != action.original_khz
        return Applied(owner_khz=owner.khz if news else None, foreign=owner.foreign)

    def _owner(self, policy: FrequencyPolicy) -> _Owner:
        """What the slot holds, or held before us."""
        lines = [r for r in self._records() if r.policy == policy.name]
        now = self._readback(policy, [line.ours_khz for line in lines])
        slot_khz = self._slot.get(policy.name, now)  # unknown: any value of ours is ours
        line = next((line for line in reversed(lines) if line.ours_khz == now), None)
        if line is not None and now == slot_khz:
            return _Owner(goes_back(line, policy), line.free, probed=is_probe(line))
        if now >= policy.max_khz:
            return _Owner(now, free=True)
        # The owner's or another limit? Until that is known, this goes back after a crash.
        self._write(policy, _Owner(now), policy.max_khz)
        back = settled(self._ports, policy, lambda khz: khz > now)
        if back is None:
            raise _RefusedError("scaling_max_freq cannot be read back")
        sure = last_known(lines, policy.name)
        if back > now:
            return _Owner(now, probed=True, foreign=sure is not None)
        if sure is not None and sure.original_khz >= now:
            return _Owner(goes_back(sure, policy), sure.free, probed=True)
        return _Owner(policy.max_khz, free=True, probed=True)

    def _readback(self, policy: FrequencyPolicy, ours: Sequence[KiloHertz]) -> KiloHertz:
        """Our own last value may take a moment to show."""
        last_khz = self._slot.get(policy.name)
        now = settled(self._ports, policy, lambda khz: khz not in ours or last_khz in (None, khz))
        if now is None:
            raise _RefusedError("scaling_max_freq cannot be read")
        return now

    def _write(self, policy: FrequencyPolicy, owner: _Owner, khz: KiloHertz) -> None:
        ports, name = self._ports, policy.name
        coming = CapRecord(name, owner.khz, khz, ports.boot_id, owner.free)
        lines = before_write(self._records(), coming, self._slot.get(name))
        try:
            ports.journal.write(lines)
        except FAULTS as error:
            log.warning("cannot write the cap journal: %s; no cap is set", error)
            raise _RefusedError(f"its journal cannot be written: {error}") from error
        self._known = lines
        self._slot.pop(name, None)
        if not ports.policies.set_cap(policy, khz):
            fault = ports.policies.fault(policy)
            right = fault.endswith(("EACCES", "EROFS", "EPERM"))
            hint = f"; {GRANT} gives that right" if right else ""
            raise _RefusedError(f"the kernel refused {fault or 'the write'}{hint}")
        self._slot[name] = khz

    def _forget(self, name: str) -> None:
        self._slot.pop(name, None)
        self._keep(after_release(self._records(), name))

    def _keep(self, records: tuple[CapRecord, ...]) -> None:
        self._known = records
        shorten(self._ports.journal, records)


def tell_of_writers(before: Mapping[str, CapState], now: Mapping[str, CapState]) -> None:
    """Once, until it was quiet for a minute: the log must tell who else turns the knob."""
    for name, cap in now.items():
        known = before.get(name)
        if cap.foreign_khz is not None and (known is None or known.foreign_khz is None):
            log.warning(
                "another program set %s to %d kHz %s our cap; two of TLP, auto-cpufreq, "
                "power-profiles-daemon and stokerd are one too many",
                name,
                cap.foreign_khz,
                "below" if cap.foreign_below else "over",
            )
