"""Our thermal law against those it replaces, on the same plants, noise and loads.

    python -m bench.thermal [--quick] [--no-plots] [--plant NAME …]

Simulated time; about five minutes. Prints tables; writes bench/results/thermal.json and, with the
environment of the bench lock, pictures beside it. The rival's parameters are those that
``python -m bench.thermal_tune`` found. Temperatures are true junctions, not what a sensor says.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench import thermal_report as report
from bench.thermal_cases import (
    CASES,
    LOADS,
    REQUEST,
    SEED,
    Builder,
    Rival,
    accidents,
    make_load,
    model_of,
    ours,
    ours_with_points,
    peers,
)
from bench.thermal_fit import all_fits
from bench.thermal_loo import leave_one_out, ratios
from bench.thermal_ours import Ours, Tuning
from bench.thermal_run import Case, Outcome, Run
from bench.thermal_service import WholeService
from bench.thermal_sweep import Best, best
from bench.thermal_tokens import VARIANTS, bound
from bench.thermal_tune import load_tuned

RESULTS: Final = Path(__file__).resolve().parent / "results" / "thermal.json"
DRAWN: Final = (
    ("pi4-bare", "constant"), ("pi5-bare", "constant"), ("pi5-bare", "burst"),
    ("pi5-passive@45C", "chat"), ("rk3588-small-heatsink", "constant"), ("die-only", "constant"),
)  # fmt: skip
ACCIDENT_S: Final = 600.0
LEFT_OUT_S: Final = 600.0
VARIANT_S: Final = 700.0
VARIED: Final = ("pi5-bare",)  # it is limited from the second minute on


def compare(case: Case, load: str, tuned: Rival) -> tuple[dict[str, Best | None], Outcome]:
    """Each law at its best set-point, and ours as shipped."""
    builders: dict[str, Builder] = peers(case, tuned) | {"stoker": ours(case)}
    if load == "chat":
        builders["stoker-points"] = ours_with_points(case)
    found: dict[str, Best | None] = {}
    for law, build in builders.items():
        threads = tuned.threads if law == "ipa-tuned" else None
        found[law] = best(case, law, build, load,
                          load_of=lambda t=threads: make_load(case, load, threads=t))  # type: ignore[misc]  # fmt: skip
        if (one := found[law]) is not None:
            print(report.line(case, load, law, one.at_k, one.outcome), flush=True)
        else:
            print(f"{case.spec.name:22}{load:15}{law:15}above the wall at every set-point")
    usual = Ours(case.spec, case.wall_c, Tuning())
    shipped = Run(case, usual, make_load(case, load), seed=SEED).go(LOADS[load])
    print(report.line(case, load, "stoker", None, shipped), flush=True)
    return found, shipped


def mishaps(case: Case, tuned: Rival) -> report.Metrics:
    """Accidents at constant load, the whole service as shipped; power_allocator at the set-point
    that never broke the wall without them."""
    made: report.Metrics = {}
    found = best(case, "ipa-tuned", peers(case, tuned)["ipa-tuned"], "constant", below=0)
    for name, accident in accidents(ACCIDENT_S).items():
        laws = {"stoker": WholeService(case.spec, case.wall_c)} | (
            {"ipa-tuned": peers(case, tuned)["ipa-tuned"](found.at_k)} if found else {}
        )
        done: dict[str, Outcome] = {}
        for law, built in laws.items():
            run = Run(case, built, make_load(case, "constant"), accident, seed=SEED)
            done[law] = run.go(ACCIDENT_S + 300.0)
            print(report.line(case, name, law, None, done[law]), flush=True)
        key = f"thermal.{case.spec.name}.{name.replace(' ', '_')}"
        recovery = {law: max(0.0, o.last_above_s - ACCIDENT_S) for law, o in done.items()}
        other = done.get("ipa-tuned")
        peer = f"ipa-tuned {other.above_s:.1f} s, {recovery['ipa-tuned']:.1f} s" if other else ""
        made[f"{key}.above_wall_s"] = report.metric(done["stoker"].above_s, "s", peer=peer)
        made[f"{key}.recovery_s"] = report.metric(recovery["stoker"], "s", peer=peer)
        made[f"{key}.peak_k"] = report.metric(
            done["stoker"].peak_c - case.wall_c, "K above the wall"
        )
    return made


def settling(case: Case, tuned: Rival) -> report.Metrics:
    """The die alone, from the step of the load until it stays within ±2 K (its sensor tells whole
    degrees)."""
    made: report.Metrics = {}
    laws = {law: build(0.0) for law, build in peers(case, tuned).items()}
    laws["stoker"] = Ours(case.spec, case.wall_c, Tuning())
    for law, built in laws.items():
        run = Run(case, built, make_load(case, "constant"), seed=SEED, trace_ms=100)
        seconds = run.go(600.0).settled_s(30.0, band_k=2.0)
        made[f"thermal.die-only.settling_s.{law}"] = report.metric(seconds, "s (600 = never)")
        print(f"die-only settles in {seconds:7.1f} s with {law}")
    return made


def sensitivity(case: Case, tuned: Rival) -> report.Metrics:
    """Tokens of ours with points over the rival's, when the token model is another one."""
    made: report.Metrics = {}
    for variant in VARIANTS:
        model = variant.model(model_of(case.spec))

        def of(law: str, build: Builder) -> Best | None:
            return best(case, law, build, "chat", seconds=VARIANT_S, below=0,
                        load_of=lambda: make_load(  # its threads only where the rival runs
                            case, "chat", model=model, request=variant.request,  # noqa: B023
                            threads=tuned.threads if law == "ipa-tuned" else None))  # fmt: skip

        rival = of("ipa-tuned", peers(case, tuned)["ipa-tuned"])
        own = of("stoker-points", ours_with_points(case, model, variant.request))
        if rival is None or own is None:
            continue
        spec = case.spec
        mean_w = (case.wall_c - 0.5 - spec.ambient_c) / sum(spec.resistances) - spec.base_w
        most = bound(spec, model, variant.request, mean_w - spec.leak_w_per_k * 28)
        ratio = own.score / rival.score
        print(
            f"{spec.name:22}{variant.name:28} tokens {ratio:.3f} of ipa-tuned, at most {most:.3f}"
        )
        made[f"thermal.{spec.name}.sensitivity.{variant.name}"] = report.metric(
            own.score, "tokens/s",
            peer=f"ipa-tuned; in steady state by arithmetic at most {most:.3f}",
            other=rival.score,
        )  # fmt: skip
    return made


def curves(
    case: Case, load: str, found: Mapping[str, Best | None], tuned: Rival
) -> dict[str, object]:
    """The best runs once more, kept as a curve each 2 s."""
    builders: dict[str, Builder] = peers(case, tuned) | {"stoker": ours(case)}
    kept: dict[str, object] = {}
    for law in ("step-wise", "ipa-tuned", "stoker"):
        one = found[law]
        if one is None:
            continue
        run = Run(case, builders[law](one.at_k), make_load(case, load), seed=SEED, trace_ms=2000)
        kept[law] = run.go(LOADS[load]).trace
    return {"plant": case.spec.name, "load": load, "wall_c": case.wall_c, "curves": kept}


def draw(runs: Sequence[object]) -> None:
    from bench.delta_peers import peers_python

    try:
        python = peers_python()
    except SystemExit as error:  # numbers matter more than pictures
        print(f"no pictures: {error}")
        return

    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(runs, file)
        file.flush()
        script = Path(__file__).with_name("thermal_plots.py")
        command = [str(python), str(script), file.name, str(RESULTS.parent)]
        subprocess.run(command, check=True, timeout=300)


def quick() -> int:
    """One plant, a short load, no file: does it all still run?"""
    case, tuned = CASES[3], load_tuned()["pi5-bare"]["constant"]
    print(report.HEAD)
    for law, build in (peers(case, tuned) | {"stoker": ours(case)}).items():
        run = Run(case, build(-1.5), make_load(case, "constant"), seed=SEED)
        print(report.line(case, "constant", law, -1.5, run.go(200.0)))
    return 0


def one_plant(case: Case, tuned: Mapping[str, Rival]) -> tuple[report.Metrics, list[object]]:
    """All that is measured on it, and the curves to draw."""
    name, made, drawn = case.spec.name, report.Metrics(), list[object]()
    for load in LOADS:
        found, shipped = compare(case, load, tuned[load])
        made |= report.shipped_metrics(case, load, shipped, found[report.RIVAL])
        made |= report.fair_metrics(case, load, found)
        if (name, load) in DRAWN:
            drawn.append(curves(case, load, found, tuned[load]))
    made |= mishaps(case, tuned["constant"])
    if name in VARIED:
        made |= sensitivity(case, tuned["chat"])
    if name == "die-only":
        made |= settling(case, tuned["constant"])
    else:
        made |= report.candidate_metrics(name, ratios(case, tuned, LEFT_OUT_S))
    return made, drawn


def save(plant: str, found: report.Metrics) -> None:
    """Into the results file, in the place of what it had of this plant. Leaving one out needs
    all of them, so it is worked out anew from what is there."""
    folder = os.open(RESULTS.parent, os.O_RDONLY)
    try:  # two plants may be measured at once, each on a core
        fcntl.flock(folder, fcntl.LOCK_EX)
        old = json.loads(RESULTS.read_text())["metrics"] if RESULTS.exists() else {}
        mine, fits = f"thermal.{plant}.", report.fit_metrics(all_fits())
        kept = {k: v for k, v in old.items() if not k.startswith(mine) and ".left_out." not in k}
        made = {k: v for k, v in kept.items() if k not in fits} | fits | found
        made |= report.left_out_metrics(leave_one_out(report.candidate_table(made)))
        document = {"request": REQUEST, "metrics": made}
        RESULTS.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    finally:
        os.close(folder)
    print(f"written: {RESULTS.relative_to(RESULTS.parents[2])}", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.thermal", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one plant, 200 s, no file")
    parser.add_argument("--no-plots", action="store_true")
    parser.add_argument("--plant", action="append", help="only this one; may be repeated")
    options = parser.parse_args(argv)
    if options.quick:
        return quick()
    logging.disable()  # the service's warnings of accidents that are meant
    tuned = load_tuned()
    print(report.HEAD)
    for case in CASES:
        name = case.spec.name
        if options.plant and name not in options.plant:
            continue
        made, drawn = one_plant(case, tuned[name])
        save(name, made)
        if drawn and not options.no_plots:
            draw(drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main())
