"""power_allocator's best parameters for each plant and load, by a search: the rival to beat.

    python -m bench.thermal_tune [PLANT …]      about a minute a plant; writes the results file

Random points, then random steps from the best; each is scored at its best set-point
(thermal_sweep.py). The search has its own noise, so that it cannot learn the one of the score.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from bench.thermal_cases import CASES, LOADS, TUNED_SEED, Rival, make_load, peers
from bench.thermal_ipa import ONE, IpaParameters
from bench.thermal_loads import Load
from bench.thermal_run import Case
from bench.thermal_sweep import Best, best

TUNED: Final = Path(__file__).resolve().parent / "results" / "thermal_tuned.json"
TRIES: Final = 60
RANDOM_PART: Final = 0.5
FIRST: Final = (
    # (part of the full power, k_po, k_pu, k_i, integral cut-off, switch-on): what longer
    # searches by hand ended at, tried on every plant before the dice.
    (0.60, 687, 772, 1, 0, 5_000),
    (0.83, 12382, 1548, 61, 1000, 10_000),
    (0.95, 5357, 830, 59, 0, 5_000),
    (0.88, 1316, 2251, 8, 1000, 5_000),
    (0.30, 2666, 628, 3, 1000, 20_000),
    (0.80, 1032, 516, 4, 3000, 5_000),
    (0.45, 702, 1690, 106, 1000, 5_000),
    (0.70, 569, 1534, 2, 1000, 10_000),
    (0.80, 1869, 934, 7, 3000, 5_000),
)


def load_tuned(path: Path = TUNED) -> dict[str, dict[str, Rival]]:
    """Plant → load → what the search found."""
    found: dict[str, dict[str, Rival]] = {}
    for plant, rows in json.loads(path.read_text()).items():
        for load, row in rows.items():
            given = {**row["parameters"], "weights": tuple(row["parameters"]["weights"])}
            found.setdefault(plant, {})[load] = Rival(IpaParameters(**given), row["threads"])
    return found


def search(case: Case, load: str, tries: int, seed: int = 5) -> tuple[IpaParameters, Best]:
    dice = random.Random(seed)
    winner: tuple[IpaParameters, Best] | None = None
    for number in range(tries):
        if number < len(FIRST):
            part, k_po, k_pu, k_i, cutoff, below = FIRST[number]
            power = round(part * case.spec.full_w * 1000)
            candidate = IpaParameters(power, k_po, k_pu, k_i, cutoff, below)
        elif winner is None or number < tries * RANDOM_PART:
            candidate = _random(case, dice)
        else:
            candidate = _near(winner[0], dice)
        found = _rate(case, load, Rival(candidate, {}))
        if found and (winner is None or found.score > winner[1].score):
            winner = candidate, found
    assert winner is not None, f"no parameters hold {case.spec.name} under {load}"
    return winner


def best_threads(case: Case, parameters: IpaParameters) -> Rival:
    """llama.cpp takes a fixed number of threads per phase (-t, -tb): the best fixed ones."""
    count = sum(len(c.cpus) for c in case.spec.clusters)
    choices = [(count, n) for n in range(max(1, count - 5), count + 1)]
    choices += [(count - 1, count - 1), (max(1, count // 2), max(1, count // 2))]
    rivals = [Rival(parameters, {"prefill": p, "decode": d}) for p, d in choices]
    found = [(_rate(case, "chat", rival), rival) for rival in rivals]
    return max(found, key=lambda pair: 0.0 if pair[0] is None else pair[0].score)[1]


def _rate(case: Case, load: str, rival: Rival) -> Best | None:
    def load_of() -> Load:
        return make_load(case, load, threads=rival.threads)

    build = peers(case, rival)["ipa-tuned"]
    return best(case, "ipa-tuned", build, load, seed=TUNED_SEED, below=0, load_of=load_of)


def _random(case: Case, dice: random.Random) -> IpaParameters:
    full_mw = case.spec.full_w * 1000
    gain = full_mw / dice.choice([2, 4, 6, 10, 15, 25, 40])  # mW per K below the target
    weights: tuple[int, ...] = ()
    if len(case.spec.clusters) > 1 and dice.random() < 0.5:
        weights = (round(ONE * dice.choice([0.25, 0.5, 2.0])), ONE, ONE)
    return IpaParameters(
        sustainable_mw=round(full_mw * dice.uniform(0.25, 1.0)),
        k_pu=_gain(gain),
        k_po=_gain(gain * dice.choice([0.5, 1, 2, 4, 8])),
        k_i=_gain(gain * 10 ** dice.uniform(-3.2, -0.8)),
        integral_cutoff_mc=dice.choice([0, 0, 1000, 3000]),
        switch_on_below_mc=dice.choice([5_000, 10_000, 20_000]),
        polling_ms=dice.choice([100, 100, 250]),
        weights=weights,
    )


def _near(found: IpaParameters, dice: random.Random) -> IpaParameters:
    def moved(value: int) -> int:
        return max(1, round(value * 10 ** dice.gauss(0, 0.12)))

    return replace(
        found,
        sustainable_mw=moved(found.sustainable_mw),
        k_po=moved(found.k_po),
        k_pu=moved(found.k_pu),
        k_i=moved(found.k_i),
    )


def _gain(mw_per_k: float) -> int:
    """The kernel's unit: 1/1024 mW per m°C."""
    return max(1, round(mw_per_k / 1000 * ONE))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.thermal_tune", description=__doc__)
    parser.add_argument("plants", nargs="*", help="default: all")
    parser.add_argument("--tries", type=int, default=TRIES)
    options = parser.parse_args(argv)
    data = json.loads(TUNED.read_text()) if TUNED.exists() else {}
    for case in CASES:
        name = case.spec.name
        if options.plants and name not in options.plants:
            continue
        for load in LOADS:
            parameters, found = search(case, load, options.tries)
            rival = best_threads(case, parameters) if load == "chat" else Rival(parameters, {})
            row = {"parameters": asdict(parameters), "threads": dict(rival.threads)}
            data.setdefault(name, {})[load] = row
            print(f"{name:24}{load:10}{found.score:8.2f} at {found.at_k:+.2f} K {parameters}",
                  flush=True)  # fmt: skip
            TUNED.write_text(json.dumps(data, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
