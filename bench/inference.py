"""``make bench NAME=inference``: our inference path against its peers, in one run.

Every number is a ratio of interleaved pairs on the same machine, library and flags, so
that a noisy neighbour hits both. Add a measurement to ``REGISTRY``; nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench import inference_engine as engine
from bench import inference_server as server
from bench.measurement import Measurement, Setting
from bench.pairs import Pair, summarize
from bench.random_model import random_model
from bench.runner_client import default_model

RESULTS: Final = Path(__file__).resolve().parent / "results" / "inference.json"
BIG: Final = "qwen2-1.5b"
SERVER: Final = "llama-server, same libraries, slots and context"
BENCH: Final = "llama-bench tg, same libraries and flags"
QUICK_PAIRS: Final = 3
LEAST_PAIRS: Final = 6
"""The ends of six are a 97 % interval of their median; of three they would be one of 75 %."""

REGISTRY: Final = (
    Measurement(
        "first_token_added_ms", "time to first token that the bus and the processes add", "ms",
        "the same engine in process, same prompt", 2.0, engine.added_first_token,
        higher=False, difference=True,
    ),
    Measurement(
        "decode_bus_tok_s", "decode through D-Bus", "tok/s", BENCH, 0.97, engine.decode_over_bus
    ),
    Measurement(
        "decode_runner_tok_s", "decode in the runner, over its frames", "tok/s", BENCH, 0.97,
        engine.decode_over_frames,
    ),
    Measurement(
        "python_step_ms", "Python in a step of one sequence", "ms", "the whole step", 0.05,
        engine.python_share, higher=False, share=0.3,
    ),
    Measurement("single_tok_s", "one stream", "tok/s", SERVER, 1.0, server.single),
    Measurement("single_rest_tok_s", "one stream over REST", "tok/s", SERVER, 1.0,
                server.single_rest, share=0.6),
    Measurement("four_tok_s", "four clients, all together", "tok/s", SERVER, 1.1, server.four,
                share=0.6),
    Measurement("four_rest_tok_s", "four clients over REST", "tok/s", SERVER, 1.1,
                server.four_rest, share=0.4),
    Measurement("eight_tok_s", "eight clients, all together", "tok/s", SERVER, 1.1, server.eight,
                share=0.3),
    Measurement(
        "beside_background_p99_ms", "interactive P99 between tokens under background load", "ms",
        "alone", 1.5, server.beside_background, higher=False, share=0.6,
    ),
    Measurement(
        "beside_background_there_p99_ms", "the same in llama-server (for knowing)", "ms", "alone",
        None, server.beside_background_there, higher=False, share=0.2,
    ),
    Measurement(
        "beside_idle_tok_s", "one stream beside eight idle conversations of 400 tokens", "tok/s",
        "none kept", 0.97, server.beside_idle, share=0.6,
    ),
    Measurement(
        "long_prefill_ms", "longest gap in a stream while another's 1,000 tokens are read", "ms",
        SERVER, 1.0, server.long_prefill, higher=False, share=0.4,
    ),
    Measurement(
        "second_turn_ms", "first token of the second turn after 1,000 tokens", "ms", SERVER, 1.0,
        server.second_turn, higher=False, share=0.6,
    ),
    Measurement(
        "restored_turn_ms", "first token of a turn after a restart", "ms",
        "reading as long a conversation anew", 0.1, server.restored_turn, higher=False, share=0.4,
    ),
    Measurement(
        "decode_bus_1_5b_tok_s", "decode through D-Bus, 1.5B shape", "tok/s", BENCH, 0.97,
        engine.decode_over_bus_big, share=0.4, slow=True,
    ),
    Measurement(
        "python_step_1_5b_ms", "Python in a step, 1.5B shape", "ms", "the whole step", 0.02,
        engine.python_share_big, higher=False, share=0.2, slow=True,
    ),
    Measurement(
        "single_1_5b_tok_s", "one stream, 1.5B shape", "tok/s", SERVER, 1.0, server.single_big,
        share=0.4, slow=True,
    ),
    Measurement(
        "four_1_5b_tok_s", "four clients, 1.5B shape", "tok/s", SERVER, 1.1, server.four_big,
        share=0.2, slow=True,
    ),
)  # fmt: skip


def measure(
    setting: Setting, chosen: list[Measurement], least: int
) -> Iterator[tuple[str, dict[str, object]]]:
    """Runs the chosen measurements, each of ``least`` pairs or more; prints a line for each."""
    for item in chosen:
        print(f"{item.title} ({item.unit}) against {item.peer}", flush=True)
        wanted = max(least, round(setting.pairs * item.share))
        pairs: list[Pair] = []
        for ours, theirs in item.run(replace(setting, pairs=wanted)):
            pairs.append((ours, theirs))
            print(f"  {ours:9.2f} {theirs:9.2f}   {ours / theirs:.3f}", flush=True)
        yield item.key, row(item, pairs)


def row(item: Measurement, pairs: list[Pair]) -> dict[str, object]:
    """One entry of the results file. ``target`` and ``interval`` are of the ratio, or of the
    difference where that is what is measured; without a target both verdicts are null."""
    summary = summarize(pairs, difference=item.difference)
    return {
        "value": round(summary.value, 3),
        "unit": item.unit,
        "peer": round(summary.peer, 3),
        "ratio": round(summary.value / summary.peer if item.difference else summary.ratio, 4),
        **({"difference": round(summary.ratio, 4)} if item.difference else {}),
        "interval": [round(summary.low, 4), round(summary.high, 4)],
        "pairs": summary.pairs,
        "target": item.target,
        "met": None if item.target is None else item.met(summary),
    }


def table(metrics: dict[str, dict[str, object]]) -> None:
    print(f"\n{'metric':32} {'ours':>9} {'peer':>9} {'ratio':>7} {'95 % interval':>17} target")
    for key, found in metrics.items():
        words = {None: "", True: "met", False: "MISSED"}
        print(
            f"{key:32} {found['value']:9} {found['peer']:9} "
            f"{found.get('difference', found['ratio']):7} {found['interval']!s:>17} "
            f"{found['target'] or ''} {words[found['met']]}"  # type: ignore[index]
        )


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.inference", description=__doc__)
    parser.add_argument("--model", type=Path, default=default_model())
    parser.add_argument("--big", type=Path, help=f"instead of random weights shaped as {BIG}")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--quiet-s", type=float, default=20.0, help="wait so long for others")
    parser.add_argument("--quick", action="store_true", help="few pairs, no 1.5B, no file")
    parser.add_argument("--only", action="append", default=[], metavar="KEY")
    parser.add_argument("--list", action="store_true", help="the keys")
    parser.add_argument("--output", type=Path, help="default: bench/results/inference.json")
    return parser.parse_args()


def main() -> int:
    words = options()
    if words.list:
        for item in REGISTRY:
            print(f"{item.key:32} {item.title}; against {item.peer}")
        return 0
    chosen = [
        item
        for item in REGISTRY
        if item.key in words.only or (not words.only and not (words.quick and item.slow))
    ]
    if not words.model.is_file():
        raise SystemExit(f"cannot measure: {words.model} is missing; 'make run' fetches it")
    big = words.big or (random_model(BIG) if any(item.slow for item in chosen) else Path())
    setting = Setting(
        words.model, big, words.threads, words.tokens // 2 if words.quick else words.tokens,
        QUICK_PAIRS if words.quick else words.pairs, words.quiet_s,
    )  # fmt: skip
    output = words.output or (None if words.quick else RESULTS)
    metrics: dict[str, dict[str, object]] = {}
    before = kept(output) if words.only else {}
    for key, found in measure(setting, chosen, QUICK_PAIRS if words.quick else LEAST_PAIRS):
        metrics[key] = found
        if output is not None:  # after each: a run of half an hour may be cut off
            every = {**before, **metrics}
            rows = {item.key: every[item.key] for item in REGISTRY if item.key in every}
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(json.dumps({"metrics": rows}, indent=2) + "\n")
    table(metrics)
    return 0


def kept(output: Path | None) -> dict[str, dict[str, object]]:
    """What ``--only`` leaves as it was."""
    if output is None or not output.exists():
        return {}
    found: dict[str, dict[str, object]] = json.loads(output.read_text())["metrics"]
    return found


if __name__ == "__main__":
    raise SystemExit(main())
