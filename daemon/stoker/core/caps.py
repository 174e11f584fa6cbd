"""What to do with one policy's cap, given the wanted step and what the kernel shows.

``scaling_max_freq`` is one slot without an owner: readback below ours means that the
kernel or somebody caps lower (fine, we follow without a bump); readback above ours means
that another program overwrote us (reported, and not fought in a tight loop). A cap at or
above what was there before us is no cap: the original value goes back. What that is the
journal says (``held``) for as long as the readback is a value of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from stoker.core.opp import PowerTable
from stoker.units import KiloHertz, Seconds

REASSERT_S = 5.0
REASSERT_HOT_S = 1.0
REFUSED_RETRY_S = 30.0
UNREAD_S = 3.0
REMEMBER_FOREIGN_S = 60.0
_LONG_AGO = Seconds(-1e9)

Held = Mapping[KiloHertz, KiloHertz]
"""Of one policy, by the journal of this boot: what we may have written -> what goes back."""


@dataclass(frozen=True, slots=True)
class Applied:
    """How a write went. ``fault`` "" = the kernel took it. ``owner_khz``: what the slot turned out
    to hold beside us, where that was not known; ``foreign``: somebody had written it while we
    capped."""

    fault: str = ""
    owner_khz: KiloHertz | None = None
    foreign: bool = False


@dataclass(frozen=True, slots=True)
class SetCap:
    """Write ``cap_khz``; ``original_khz`` is what goes back when we stop. ``release``: the
    two are equal and nothing of ours is left afterwards."""

    policy: str
    cap_khz: KiloHertz
    original_khz: KiloHertz
    release: bool = False


@dataclass(frozen=True, slots=True)
class CapState:
    """``ours_khz`` None = we do not cap; ``before_khz`` is what it goes back to if the kernel
    refuses the last write. ``original_khz`` None = not seen yet. ``foreign_below``: the other
    program's value is lower than ours was."""

    ours_khz: KiloHertz | None = None
    original_khz: KiloHertz | None = None
    written_s: Seconds = _LONG_AGO
    refused_s: Seconds = _LONG_AGO
    fault: str = ""
    before_khz: KiloHertz | None = None
    foreign_khz: KiloHertz | None = None
    foreign_s: Seconds = _LONG_AGO
    foreign_below: bool = False
    slept: bool = False  # the device or the policy was away: a cap that is gone was nobody's deed
    unread_s: Seconds | None = None  # since when it cannot be read

    def refused(self, now_s: Seconds) -> bool:
        return now_s - self.refused_s < REFUSED_RETRY_S

    def unread(self, now_s: Seconds) -> bool:
        """For so long that the wall must be held by something else."""
        return self.unread_s is not None and now_s - self.unread_s >= UNREAD_S


def observe(
    state: CapState,
    granted_khz: KiloHertz | None,
    max_khz: KiloHertz,
    now_s: Seconds,
    hot: bool,
    held: Held | None = None,
) -> CapState:
    """Take the readback in. None = it cannot be read now: the policy is offline, and Linux keeps
    what we wrote, or the read failed. Either way we go on from what we know.

    While it is hot a low readback may be the kernel's own throttling, which must not be
    mistaken for the owner's setting.
    """
    held = held or {}
    if granted_khz is None:
        since_s = now_s if state.unread_s is None else state.unread_s
        return replace(away(state), unread_s=since_s)
    if state.unread_s is not None:
        state = replace(state, unread_s=None)
    if state.foreign_khz is not None and now_s - state.foreign_s > REMEMBER_FOREIGN_S:
        state = replace(state, foreign_khz=None)
    if state.ours_khz is None and granted_khz in held:  # a write that we could not take back
        state = replace(state, ours_khz=granted_khz, original_khz=held[granted_khz])
    if state.ours_khz is None:
        state = replace(state, slept=False)
        if state.original_khz is None:
            return replace(state, original_khz=max_khz if hot else granted_khz)
        low_khz = state.original_khz if hot else granted_khz
        return replace(state, original_khz=max(low_khz, granted_khz))
    if granted_khz <= state.ours_khz or granted_khz in held:
        original_khz = held.get(granted_khz, state.original_khz)
        return replace(state, slept=False, original_khz=original_khz)
    if state.slept:
        # Frequency drivers may start anew: what we wrote is written again at once.
        return replace(state, slept=False, ours_khz=None)
    return replace(
        state,
        foreign_khz=granted_khz,
        foreign_s=now_s,
        foreign_below=False,
        original_khz=granted_khz,
    )


def away(state: CapState) -> CapState:
    """The policy is not there: it may come back with our cap or without."""
    return replace(state, slept=True) if state.ours_khz is not None else state


def refuse(state: CapState, now_s: Seconds, fault: str = "") -> CapState:
    """The kernel or the journal did not take our last write: the one before still stands."""
    return replace(state, ours_khz=state.before_khz, refused_s=now_s, fault=fault)


def found(state: CapState, owner_khz: KiloHertz, now_s: Seconds, *, foreign: bool) -> CapState:
    """Our last write showed what the slot held beside us."""
    ours_khz = state.ours_khz
    if ours_khz is not None and ours_khz >= owner_khz:
        ours_khz = None  # the owner's own limit is as low: there is nothing to cap
    was_khz = state.before_khz
    state = replace(state, ours_khz=ours_khz, original_khz=owner_khz)
    if not foreign:
        return state
    below = was_khz is not None and owner_khz < was_khz
    return replace(state, foreign_khz=owner_khz, foreign_s=now_s, foreign_below=below)


def want(
    state: CapState,
    table: PowerTable,
    index: int,
    granted_khz: KiloHertz | None,
    now_s: Seconds,
    hot: bool,
) -> tuple[CapState, SetCap | None]:
    """The write that brings the policy to step ``index``, or None when there is none."""
    if granted_khz is None or state.original_khz is None or state.refused(now_s):
        return state, None
    cap_khz = table.steps_khz[index]
    if cap_khz >= state.original_khz:
        if state.ours_khz is None:
            return state, None
        action = SetCap(table.policy, state.original_khz, state.original_khz, release=True)
        return replace(state, before_khz=state.ours_khz, ours_khz=None, written_s=now_s), action
    overwritten = state.ours_khz is not None and granted_khz > state.ours_khz
    if overwritten and now_s - state.written_s < (REASSERT_HOT_S if hot else REASSERT_S):
        return state, None
    if cap_khz == state.ours_khz and not overwritten:
        return state, None
    action = SetCap(table.policy, cap_khz, state.original_khz)
    return replace(state, before_khz=state.ours_khz, ours_khz=cap_khz, written_s=now_s), action


def highest_index(state: CapState, table: PowerTable, granted_khz: KiloHertz | None) -> int:
    """The step up to which our cap may rise: one above what others grant."""
    top = len(table.steps_khz) - 1
    wanted_khz = table.steps_khz[top] if state.ours_khz is None else state.ours_khz
    if granted_khz is None or granted_khz >= wanted_khz:
        return top
    return min(top, table.floor_index(granted_khz) + 1)


def owner_index(state: CapState, table: PowerTable) -> int:
    """The step up to which the owner's own setting allows."""
    top = len(table.steps_khz) - 1
    if state.original_khz is None or state.original_khz >= table.steps_khz[top]:
        return top
    return min(top, table.floor_index(state.original_khz) + 1)
