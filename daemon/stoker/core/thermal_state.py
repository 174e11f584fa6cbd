"""The values that one tick of the thermal loop takes and gives; no behaviour.

``ThermalState`` is the loop's whole memory. Must not hold anything that is not a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stoker.core.caps import Applied, CapState, Held, SetCap
from stoker.core.failsafe import Trust
from stoker.core.opp import RATION, StepState
from stoker.core.pid import PidState
from stoker.core.spending import Spending
from stoker.events.heat_finds import FirmwareFlags
from stoker.events.thermal import Reading, ThermalSnapshot
from stoker.units import Fraction, KiloHertz, Seconds, Watts


@dataclass(frozen=True, slots=True)
class Pause:
    """Pause (or let go on) all inference."""

    paused: bool
    reason: str = ""


Action = SetCap | Pause


@dataclass(frozen=True, slots=True)
class Observation:
    """``granted_khz`` is the readback of scaling_max_freq (None = unreadable); ``applied`` is how
    the writes of the tick before went, ``held`` what the journal calls ours; ``activity`` 0..1
    is how busy inference is;
    ``power_w`` is measured (None = estimate it) and ``firmware`` what a Pi's firmware does.
    ``phase`` and ``prefill_share``: see ``token_mix``. ``wanted_khz``: a calibration's clocks,
    obeyed as far as the wall allows (None = there is none). ``sensed`` False: only what the agent
    does has changed, and the readings are those of the tick before."""

    now_s: Seconds
    readings: Mapping[str, Reading]
    granted_khz: Mapping[str, KiloHertz | None]
    applied: Mapping[str, Applied] = field(default_factory=dict)
    activity: Fraction = Fraction(1.0)
    power_w: Watts | None = None
    firmware: FirmwareFlags | None = None
    phase: str = ""
    prefill_share: float = 0.0
    wanted_khz: Mapping[str, KiloHertz] | None = None
    sensed: bool = True
    held: Mapping[str, Held] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ZoneState:
    trust: Trust
    power: PidState
    limits_khz: Mapping[str, KiloHertz] = field(default_factory=dict)  # of the step-table law


@dataclass(frozen=True, slots=True)
class ThermalState:
    at_s: Seconds
    zones: Mapping[str, ZoneState] = field(default_factory=dict)
    steps: Mapping[str, StepState] = field(default_factory=dict)
    caps: Mapping[str, CapState] = field(default_factory=dict)
    paused: bool = False
    spending: Spending = field(default_factory=Spending)
    measured: bool = False  # a calibration chose the clock of the tick before
    rises_left: float = RATION


@dataclass(frozen=True, slots=True)
class Decision:
    actions: tuple[Action, ...]
    snapshot: ThermalSnapshot
