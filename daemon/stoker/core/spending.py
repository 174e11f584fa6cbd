"""The power budget of the whole board spent on operating points, from tick to tick. Pure.

``operating_points`` says what is best for a budget; here it falls at once, rises with a dwell, and
not at all while a reading is in doubt. Must not: know sensors or write anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stoker.core.operating_points import Fronts, choose, mean_watts, rounded, spend
from stoker.core.opp import DWELL_S
from stoker.events.operating import DECODE, PHASES, Choice
from stoker.units import Fraction, KiloHertz, Seconds, Watts

_LONG_AGO = Seconds(-1e9)


@dataclass(frozen=True, slots=True)
class Spending:
    """``choices`` by phase; empty = nothing was chosen (no table, no trust, nothing limits)."""

    choices: Mapping[str, Choice] = field(default_factory=dict)
    raised_s: Seconds = _LONG_AGO

    def threads(self, phase: str) -> int:
        """0 = as configured."""
        choice = self.choices.get(phase)
        return 0 if choice is None else choice.point.setting.threads

    def duty(self, phase: str) -> Fraction:
        choice = self.choices.get(phase or DECODE)
        return Fraction(1.0) if choice is None else choice.duty

    def caps_khz(self, phase: str) -> dict[str, KiloHertz]:
        """{} while nothing runs: then the clock is others' affair."""
        choice = self.choices.get(phase)
        return {} if choice is None else dict(choice.point.setting.caps)


def step(
    known: Fronts,
    before: Spending,
    part: float,
    share: float,
    now_s: Seconds,
    *,
    may_rise: bool,
    paces: bool,
) -> Spending:
    """``part`` 0..1 of what a phase alone, or the mix, burns at its fastest: a budget above that
    would have to fall before it does anything. ``share``: of the tokens of late, those read."""
    held = {phase: choice.point for phase, choice in before.choices.items()}
    stays = bool(held) and (now_s - before.raised_s < DWELL_S - 1e-6 or not may_rise)
    part *= 1 + 1e-9
    if 0.0 < rounded(share) < 1.0:
        fastest = {phase: Choice(known.of(phase)[-1]) for phase in PHASES}
        budget_w = part * mean_watts(fastest, share)
        burnt_w = mean_watts(before.choices, share)
        budget_w = min(budget_w, burnt_w * (1 + 1e-9)) if stays else budget_w
        choices = spend(known, share, Watts(budget_w), held=held, paces=paces)
        rose = bool(held) and mean_watts(choices, share) > burnt_w * (1 + 1e-6)
    else:
        choices, rose = {}, False
        for phase in PHASES:
            own, budget_w = known.of(phase), part * known.of(phase)[-1].watts
            if stays:
                budget_w = min(budget_w, before.choices[phase].watts * (1 + 1e-9))
            choices[phase] = choose(own, Watts(budget_w), held=held.get(phase), paces=paces)
            now_w = choices[phase].watts
            rose = rose or (bool(held) and now_w > before.choices[phase].watts * (1 + 1e-6))
    return Spending(choices, now_s if rose else before.raised_s)
