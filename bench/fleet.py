"""``make bench NAME=fleet``: what a broker and the fleet client give, and a campaign of many.

Pull throughput as a ratio to the broker's own and to W·C/RTT, the broker's memory and CPU, and
simulated devices in a campaign with one fault in ten. Needs mosquitto; loads no model.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench import fleet_campaign, fleet_pull

ROOT: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = ROOT / "bench" / "results" / "fleet.json"
DELAYS_MS: Final = [0, 40, 150]
AT_LEAST: Final = {"pull_ratio_0ms": 0.8, "pull_line_40ms": 0.9, "pull_line_150ms": 0.9}
AT_MOST: Final = {"campaign_wrong": 0.0}
Metrics = dict[str, tuple[float, str]]


def pulling(size_mb: float, rounds: int) -> Metrics:
    found, cost = fleet_pull.measure(size_mb, DELAYS_MS, rounds)
    metrics: Metrics = {}
    for delay, pulled in found.items():
        metrics[f"pull_{delay}ms_mb_s"] = (pulled.ours, "MB/s")
        metrics[f"raw_{delay}ms_mb_s"] = (pulled.raw, "MB/s")
        metrics[f"pull_ratio_{delay}ms"] = (pulled.ours / pulled.raw, "of raw")
        if delay:
            metrics[f"pull_line_{delay}ms"] = (pulled.ours / pulled.line, "of W·C/RTT")
    metrics["broker_mb_per_100mb"] = (cost.memory_mb, "MB")
    metrics["broker_cpu_s_per_100mb"] = (cost.cpu_s, "s")
    return metrics


def campaign(devices: int) -> Metrics:
    found = fleet_campaign.run(devices)
    return {
        "campaign_devices": (found.devices, "devices"),
        "campaign_faulty": (found.faulty, "devices"),
        "campaign_wrong": (found.wrong + (found.phase != "succeeded"), "devices"),
        "campaign_again": (found.again, "installations"),
        "campaign_took_s": (found.took_s, "s"),
        "device_memory_mb": (found.device_mb, "MB"),
        "campaign_broker_mb": (found.broker_mb, "MB"),
    }


def judged(metrics: Metrics) -> dict[str, dict[str, object]]:
    out: dict[str, dict[str, object]] = {}
    for key, (value, unit) in metrics.items():
        row: dict[str, object] = {"value": round(value, 3), "unit": unit}
        if key in AT_LEAST:
            row |= {"target": f"≥ {AT_LEAST[key]:g} {unit}", "met": value >= AT_LEAST[key]}
        if key in AT_MOST:
            row |= {"target": f"≤ {AT_MOST[key]:g} {unit}", "met": value <= AT_MOST[key]}
        out[f"fleet.{key}"] = row
    return out


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10 MB, 40 devices; keeps no result")
    parser.add_argument("--size-mb", type=float, default=100.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--devices", type=int, default=1000, help="0 = no campaign")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(argv)
    if options.quick:
        options.size_mb, options.rounds, options.devices = 10.0, 1, min(options.devices, 40)
    metrics = pulling(options.size_mb, options.rounds) if options.size_mb else {}
    if options.devices:
        metrics |= campaign(options.devices)
    rows = judged(metrics)
    for key, row in rows.items():
        verdict = "" if "met" not in row else "met" if row["met"] else "MISSED"
        print(
            f"{key:32} {row['value']!s:>9} {row['unit']!s:12} {row.get('target', '')!s:20}{verdict}"
        )
    output = options.output or (None if options.quick else RESULTS)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps({"metrics": rows}, indent=2, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
