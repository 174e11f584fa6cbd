"""What to do with one policy's cap, given the wanted step and what the kernel shows.

``scaling_max_freq`` is one slot without an owner: readback below ours means that the
kernel or somebody caps lower (fine, we follow without a bump); readback above ours means
that another program overwrote us (reported, and not fought in a tight loop). A cap at or
above what was there before us is no cap: the original value goes back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stoker.core.opp import PowerTable
from stoker.units import KiloHertz, Seconds

REASSERT_S = 5.0
REASSERT_HOT_S = 1.0
REFUSED_RETRY_S = 30.0
REMEMBER_FOREIGN_S = 60.0
_LONG_AGO = Seconds(-1e9)


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
    """``ours_khz`` None = we do not cap. ``original_khz`` None = not seen yet."""

    ours_khz: KiloHertz | None = None
    original_khz: KiloHertz | None = None
    written_s: Seconds = _LONG_AGO
    refused_s: Seconds = _LONG_AGO
    foreign_khz: KiloHertz | None = None
    foreign_s: Seconds = _LONG_AGO
    slept: bool = False  # the device slept since: a cap that is gone was nobody's deed

    def refused(self, now_s: Seconds) -> bool:
        return now_s - self.refused_s < REFUSED_RETRY_S


def observe(
    state: CapState, granted_khz: KiloHertz | None, max_khz: KiloHertz, now_s: Seconds, hot: bool
) -> CapState:
    """Take the readback in. None = the policy is gone and with it everything we wrote.

    While it is hot a low readback may be the kernel's own throttling, which must not be
    mistaken for the owner's setting.
    """
    if granted_khz is None:
        return CapState()
    if state.ours_khz is None:
        if state.original_khz is None:
            return replace(state, original_khz=max_khz if hot else granted_khz)
        return state if hot else replace(state, original_khz=granted_khz)
    if state.slept:
        # Frequency drivers may start anew: what we wrote is written again at once.
        ours_khz = state.ours_khz if granted_khz <= state.ours_khz else None
        return replace(state, slept=False, ours_khz=ours_khz)
    if granted_khz > state.ours_khz:
        return replace(state, foreign_khz=granted_khz, foreign_s=now_s, original_khz=granted_khz)
    if now_s - state.foreign_s > REMEMBER_FOREIGN_S:
        return replace(state, foreign_khz=None)
    return state


def refuse(state: CapState, now_s: Seconds) -> CapState:
    """The kernel did not take our last write."""
    return replace(state, ours_khz=None, refused_s=now_s)


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
        return replace(state, ours_khz=None, written_s=now_s), action
    overwritten = state.ours_khz is not None and granted_khz > state.ours_khz
    if overwritten and now_s - state.written_s < (REASSERT_HOT_S if hot else REASSERT_S):
        return state, None
    if cap_khz == state.ours_khz and not overwritten:
        return state, None
    action = SetCap(table.policy, cap_khz, state.original_khz)
    return replace(state, ours_khz=cap_khz, written_s=now_s), action


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
