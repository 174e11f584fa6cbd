"""Plants, walls, loads and accidents of the thermal comparison, and how each law is built.

A law is built for a set-point: kelvins from the wall at which it is told to hold the sensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from bench.thermal_decide import OursWithPoints
from bench.thermal_ipa import IpaParameters, PowerAllocator
from bench.thermal_law import Law
from bench.thermal_laws import OpenLoop, StepTable, StepWise
from bench.thermal_loads import GAP_LOAD, Chat, Load, Plain
from bench.thermal_ours import Ours, Tuning
from bench.thermal_plant import FastPlant
from bench.thermal_points import fronts_of
from bench.thermal_run import Accident, Case
from stoker.drivers.plants import PLANTS, PlantSpec, warmer
from stoker.drivers.token_model import MODELS, TokenModel

CASES: Final = (
    Case(PLANTS["pi4-bare"], 78.5),
    Case(warmer(PLANTS["pi4-cooler"], 45.0), 78.5),
    Case(warmer(PLANTS["pi5-passive"], 45.0), 78.5),
    Case(PLANTS["pi5-bare"], 78.5),
    Case(PLANTS["rk3588-small-heatsink"], 83.0),
    Case(PLANTS["die-only"], 88.0),
)
LOADS: Final = {"constant": 1500.0, "burst": 900.0, "chat": 900.0}  # seconds
REQUEST: Final = (512, 128)  # tokens read, tokens written
STEP_K: Final = 0.25
TUNED_SEED, SEED = 1, 2
"""The rival is tuned on one noise, everybody is scored on another."""

# The die of 50 ms crosses its wall 90 ms after the load comes, when a sensor 60 ms late and an
# actuator of 20 ms have not even told: the onsets of a load are forgiven there, to every law.
FORGIVEN_S: Final = {"constant": 1.0, "burst": 15.0, "chat": 1.0}


@dataclass(frozen=True, slots=True)
class Rival:
    """Parameters that a search found for one plant and load. ``threads`` per phase; 0 = all."""

    parameters: IpaParameters
    threads: Mapping[str, int]


def forgiven_s(case: Case, load: str) -> float:
    return FORGIVEN_S[load] if case.spec.name == "die-only" else 0.0


def model_of(spec: PlantSpec) -> TokenModel:
    return MODELS[spec.board]


def make_load(
    case: Case,
    name: str,
    *,
    threads: Mapping[str, int] | None = None,
    model: TokenModel | None = None,
    request: tuple[int, int] = REQUEST,
) -> Load:
    if name == "constant":
        return Plain(case.spec, [(1000, 1.0)])
    if name == "burst":
        return Plain(case.spec, [(14_000, 1.0), (6_000, GAP_LOAD)])
    return Chat(case.spec, model or model_of(case.spec), request, threads)


Builder = Callable[[float], Law]
"""From a set-point (K above the wall) to a law; a builder may not be asked twice for one law."""


def ours(case: Case, tuning: Tuning | None = None) -> Builder:
    """Its set-point is the wall less the margin; the wall itself stays told."""
    spec, given = case.spec, tuning or Tuning()
    return lambda at_k: Ours(spec, case.wall_c, _margin(given, at_k))


def ours_with_points(
    case: Case, model: TokenModel | None = None, request: tuple[int, int] = REQUEST
) -> Builder:
    spec = case.spec
    fronts = fronts_of(spec, model or model_of(spec))
    share = request[0] / sum(request)
    return lambda at_k: OursWithPoints(spec, case.wall_c, _margin(Tuning(), at_k), fronts, share)


def _margin(tuning: Tuning, at_k: float) -> Tuning:
    return Tuning(-at_k, tuning.gain, tuning.reset_s, tuning.look_ahead_s, tuning.settled_part)


def peers(case: Case, tuned: Rival) -> dict[str, Builder]:
    spec, wall_c = case.spec, case.wall_c
    return {
        "open-loop": lambda _at_k: OpenLoop(spec),
        "step-table": lambda at_k: StepTable(spec, wall_c + at_k),
        "step-wise": lambda at_k: StepWise(spec, wall_c + at_k),
        "ipa": lambda at_k: PowerAllocator(spec, wall_c + at_k, IpaParameters()),
        "ipa-tuned": lambda at_k: PowerAllocator(spec, wall_c + at_k, tuned.parameters),
    }


HIGHEST_K: Final = {
    "stoker": -STEP_K, "stoker-points": -STEP_K, "step-table": -2.0, "ipa": 10.0, "ipa-tuned": 4.0,
}  # fmt: skip
"""Where the sweep of a law begins; 2 K above the wall for the others. (power_allocator with
default gains settles far below its set-point.)"""


def accidents(at_s: float) -> dict[str, Accident]:
    at_ms = round(at_s * 1000)
    return {
        "ambient +10 K": Accident(at_ms, partial(_warm, kelvin=10.0)),
        "fan stop": Accident(at_ms, partial(_still, factor=1.5)),
        "sensor dropout": Accident(at_ms, blind_ms=5_000),
        "foreign writer": Accident(at_ms, lifted_ms=10_000),
    }


def _warm(plant: FastPlant, kelvin: float) -> None:
    plant.air_c += kelvin


def _still(plant: FastPlant, factor: float) -> None:
    """Slow resistances grow by half, as when the air stops moving over the heatsink."""
    plant.slow_factor = factor
