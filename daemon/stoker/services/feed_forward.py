"""Wakes the thermal loop when what is computed changes, before its heat is felt.

Only where the next tick would do something about it: many short jobs change the phase a hundred
times a second, and each tick costs some. Must not: know sensors, clocks or points.
"""

from __future__ import annotations

from typing import Protocol


class PhaseFollower(Protocol):
    """The thermal loop. Any thread."""

    @property
    def follows_phase(self) -> bool: ...

    def poke(self) -> None: ...


class FeedForward:
    """``governs``: a governor is set while anything is computed. The inference loop's thread."""

    def __init__(self, heat: PhaseFollower, *, governs: bool) -> None:
        self._heat, self._governs = heat, governs
        self._phase = ""

    def heard(self, phase: str) -> None:
        """prefill | decode | "" (nothing), as often as one likes."""
        if phase == self._phase:
            return
        begins_or_ends = not phase or not self._phase
        self._phase = phase
        if self._heat.follows_phase or (self._governs and begins_or_ends):
            self._heat.poke()
