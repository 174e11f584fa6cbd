"""Which journal lines must exist before a write, and how a left-over cap is undone.

Before a cap changes, the journal holds every value that the slot may have from us, each with
what goes back for it: a crash between two writes must not leave a cap that nobody recognises.
A line whose value is above its original is a probe: see ``services.cap_writer``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from stoker.core.caps import Held
from stoker.events.thermal import CapRecord
from stoker.units import KiloHertz


def before_write(
    records: Sequence[CapRecord], coming: CapRecord, slot_khz: KiloHertz | None = None
) -> tuple[CapRecord, ...]:
    """The lines to write first. ``slot_khz``: the value of ours that is surely there now, None
    when a write was refused since: then each older one stays, with the original of its time."""
    others = [r for r in records if r.policy != coming.policy]
    kept = [r for r in records if r.policy == coming.policy and r.ours_khz != coming.ours_khz]
    if slot_khz is not None:
        kept = [r for r in kept if r.ours_khz == slot_khz]
        if not is_probe(coming):  # what goes back is known by now
            kept = [replace(coming, ours_khz=r.ours_khz) for r in kept]
    return (*others, *kept, coming)


def is_probe(record: CapRecord) -> bool:
    return record.ours_khz > record.original_khz


def after_release(records: Sequence[CapRecord], policy: str) -> tuple[CapRecord, ...]:
    return tuple(record for record in records if record.policy != policy)


def without_probes(records: Sequence[CapRecord], policy: str) -> tuple[CapRecord, ...]:
    """After the first cap that followed: the slot has another value."""
    return tuple(r for r in records if r.policy != policy or r.ours_khz < r.original_khz)


def of_boot(records: Sequence[CapRecord], boot_id: str) -> tuple[CapRecord, ...]:
    """Lines of another boot are void: the kernel forgot those caps already."""
    return tuple(record for record in records if record.boot_id == boot_id)


def held(records: Sequence[CapRecord]) -> Mapping[str, Held]:
    """By policy: what we may have written -> what goes back; a value's newest line counts."""
    out: dict[str, dict[KiloHertz, KiloHertz]] = {}
    for record in records:
        out.setdefault(record.policy, {})[record.ours_khz] = record.original_khz
    return out


def merged(*lists: Sequence[CapRecord]) -> tuple[CapRecord, ...]:
    """One line for each policy and value; that of the last list counts."""
    found = {(r.policy, r.ours_khz): r for records in lists for r in records}
    return tuple(found.values())


def last_known(records: Sequence[CapRecord], policy: str) -> CapRecord | None:
    """The newest line whose original was in the slot for sure: no probe."""
    sure = [r for r in records if r.policy == policy and not is_probe(r)]
    return sure[-1] if sure else None
