"""Which journal lines must exist before a write, and how a left-over cap is undone.

Before a cap changes, the journal holds both the value that is there and the one to come:
a crash between the two writes must not leave a cap that nobody recognises as ours.
"""

from __future__ import annotations

from collections.abc import Sequence

from stoker.core.caps import SetCap
from stoker.events.thermal import CapRecord
from stoker.units import KiloHertz


def before_write(
    records: Sequence[CapRecord], action: SetCap, boot_id: str
) -> tuple[CapRecord, ...]:
    """The lines to write first: the policy's newest one stays beside the new one."""
    others = [r for r in records if r.policy != action.policy]
    last = [r for r in records if r.policy == action.policy][-1:]
    coming = CapRecord(action.policy, action.original_khz, action.cap_khz, boot_id)
    kept = [CapRecord(r.policy, action.original_khz, r.ours_khz, boot_id) for r in last]
    return (*others, *(r for r in kept if r != coming), coming)


def after_release(records: Sequence[CapRecord], policy: str) -> tuple[CapRecord, ...]:
    return tuple(record for record in records if record.policy != policy)


def ours(records: Sequence[CapRecord], policy: str, boot_id: str) -> tuple[KiloHertz, ...]:
    """Values of this boot that we may have written; empty = nothing to undo."""
    return tuple(r.ours_khz for r in records if r.policy == policy and r.boot_id == boot_id)
