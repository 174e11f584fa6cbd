"""``make bench NAME=delta``: sizes, times and memory of deltas against their peers.

Every delta is applied and compared. CPU seconds stand beside wall time: on a busy machine only
they compare. ``--quick`` uses a small random model and leaves out the slow peers.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.delta_pairs import FilePair, Files
from bench.delta_peers import ROOT, Cost, Peer, peers, peers_python, run
from bench.peers import cache_dir
from bench.runner_client import default_model
from stoker_ota.core import gguf_layout
from stoker_ota.units import MIB

RESULTS: Final = ROOT / "bench" / "results" / "delta.json"
COPY: Final = (sys.executable, "-m", "bench.delta_copy", "{old}", "{out}")
CODECS: Final = ("bz2", "zstd", "smallest")
OTA: Final = (sys.executable, "-m", "stoker_ota.cli.main", "delta")
TARGETS: Final = {
    "random.q4_k_m.2pct.bz2_ratio": 0.23,
    "random.q4_k_m.10pct.bz2_ratio": 0.45,
    "random.q4_k_m.2pct.zstd_ratio": 0.27,
    "smollm2.q4_0.2pct.bz2_ratio": 0.235,
    "smollm2.q4_0.2pct.zstd_ratio": 0.27,
    "smollm2.q8_0.2pct.bz2_ratio": 0.38,
    "large.apply_peak_mib": 64.0,  # of a file of LARGE_ENOUGH_MIB at least
}
"""At most so much."""
FLOORS: Final = {"make_cpu_speedup_bsdiff4": 20.0, "large.apply_zstd_of_copy": 0.3}
"""At least so much."""
LARGE: Final = "large.apply_peak_mib"
LARGE_ENOUGH_MIB: Final = 1000.0
"""What memory for a gigabyte takes is not shown by less of it."""
COMPARED: Final = "random.q4_k_m.2pct"
Metrics = dict[str, tuple[float, str]]


def make(pair: FilePair, delta: Path, codec: str) -> Cost:
    words = ("make", "--codec", codec, "--max-ratio", "2", "--no-proof", "{old}", "{new}")
    return run((*OTA, *words, "-o", "{delta}"), files(pair, delta))


def apply(pair: FilePair, delta: Path, out: Path, *, one_core: bool = False) -> Cost:
    names = files(pair, delta, out)
    words = ("apply", "--json", "{delta}", "{old}", "-o", "{out}")
    cost = run((*OTA, *words), names, one_core=one_core)
    said = json.loads(cost.said)
    cost = replace(cost, peak_bytes=said["peak_memory_bytes"])
    if not filecmp.cmp(pair.new, out, shallow=False):
        raise SystemExit(f"WRONG RESULT: {pair.key}")
    out.unlink()
    return cost


def files(pair: FilePair, delta: Path, out: Path = Path("none")) -> dict[str, Path]:
    return {"old": pair.old, "new": pair.new, "delta": delta, "out": out}


def ours(pair: FilePair, folder: Path) -> Iterator[tuple[str, float, str]]:
    """Size with each codec; time and memory with the default one."""
    full = pair.new.stat().st_size
    delta, out = folder / "delta", folder / "out"
    for codec in CODECS:
        cost = make(pair, delta, codec)
        yield f"{codec}_ratio", delta.stat().st_size / full, ""
        yield f"make_{codec}_s_per_mib", cost.seconds / full * MIB, "s"
        yield f"make_{codec}_cpu_s_per_mib", cost.cpu_s / full * MIB, "s"
        yield f"make_{codec}_peak_mib", cost.peak_bytes / MIB, "MiB"
        cost = apply(pair, delta, out)
        yield f"apply_{codec}_s", cost.seconds, "s"
        yield f"apply_{codec}_peak_mib", cost.peak_bytes / MIB, "MiB"


def against(peer: Peer, pair: FilePair, folder: Path) -> Iterator[tuple[str, float, str]]:
    full = pair.new.stat().st_size
    names = files(pair, folder / "peer-delta", folder / "peer-out")
    cost = run(peer.make, names)
    yield "ratio", names["delta"].stat().st_size / full, ""
    yield "make_s_per_mib", cost.seconds / full * MIB, "s"
    yield "make_cpu_s_per_mib", cost.cpu_s / full * MIB, "s"
    yield "make_peak_mib", cost.peak_bytes / MIB, "MiB"
    cost = run(peer.apply, names)
    if not filecmp.cmp(pair.new, names["out"], shallow=False):
        raise SystemExit(f"WRONG RESULT of {peer.name}")
    yield "apply_s", cost.seconds, "s"
    yield "apply_peak_mib", cost.peak_bytes / MIB, "MiB"


def large(pair: FilePair, folder: Path, size: int) -> Iterator[tuple[str, float, str]]:
    """A file of ``size`` bytes: the pair's tensors again and again under other names."""
    big = FilePair("large", folder / "large-old", folder / "large-new")
    for source, target in ((pair.old, big.old), (pair.new, big.new)):
        repeat(source, target, size)
    delta, out = folder / "delta", folder / "out"
    yield "size_mib", big.new.stat().st_size / MIB, "MiB"
    for codec in ("zstd", "bz2"):
        cost = make(big, delta, codec)
        yield f"make_{codec}_s", cost.seconds, "s"
        best = best_copy = cpu_s = copy_cpu_s = float("inf")
        for _ in range(3):
            copied = run(COPY, files(big, delta, out), one_core=True)
            cost = apply(big, delta, out, one_core=True)
            said = json.loads(cost.said)  # of applying alone: not the hashes before and after
            best, best_copy = min(best, said["apply_seconds"]), min(best_copy, copied.seconds)
            cpu_s, copy_cpu_s = (
                min(cpu_s, said["apply_cpu_seconds"]),
                min(copy_cpu_s, copied.cpu_s),
            )
        yield f"apply_{codec}_of_copy", best_copy / best, ""
        yield f"apply_{codec}_cpu_of_copy", copy_cpu_s / cpu_s, ""
        yield f"apply_{codec}_mib_per_s", big.new.stat().st_size / MIB / best, "MiB/s"
    yield "apply_peak_mib", cost.peak_bytes / MIB, "MiB"
    big.old.unlink()
    big.new.unlink()


def repeat(source: Path, target: Path, size: int) -> None:
    """Plain repetition: a GGUF with bytes behind its last tensor, which belong to that tensor."""
    data = source.read_bytes()
    layout = gguf_layout.parse(data[: 16 << 20], len(data))
    with target.open("wb") as file:
        file.write(data)
        while file.tell() < size:
            file.write(data[layout.data_off :])


def judged(metrics: Metrics) -> dict[str, dict[str, object]]:
    out: dict[str, dict[str, object]] = {}
    for key, (value, unit) in metrics.items():
        row: dict[str, object] = {"value": round(value, 4)}
        if unit:
            row["unit"] = unit
        size_mib = metrics.get("large.size_mib", (0.0, ""))[0]
        if key in TARGETS and (key != LARGE or size_mib >= LARGE_ENOUGH_MIB):
            row |= {"target": f"≤ {TARGETS[key]:g}", "met": value <= TARGETS[key]}
        if key in FLOORS:
            row |= {"target": f"≥ {FLOORS[key]:g}", "met": value >= FLOORS[key]}
        out[f"delta.{key}"] = row
    return out


def measure(options: argparse.Namespace, folder: Path) -> Metrics:
    metrics: Metrics = {}

    def note(prefix: str, found: Iterator[tuple[str, float, str]]) -> None:
        for name, value, unit in found:
            metrics[f"{prefix}.{name}"] = (value, unit)
            print(f"{prefix + '.' + name:56} {value:10.4f} {unit}", flush=True)

    compared: FilePair | None = None
    for pair in Files(folder, options.model, options.layers).pairs(tuple(options.only)):
        note(pair.key, ours(pair, folder))
        compared = pair if pair.key == COMPARED else compared
    if compared is None:
        return metrics
    for peer in peers():
        if options.quick and peer.name in ("detools", "HDiffPatch"):
            continue
        note(f"peer.{peer.name.split()[0].lower()}", against(peer, compared, folder))
    slow = metrics["peer.bsdiff4.make_cpu_s_per_mib"][0]
    fast = metrics[f"{COMPARED}.make_bz2_cpu_s_per_mib"][0]
    metrics["make_cpu_speedup_bsdiff4"] = (slow / fast, "")
    note("large", large(compared, folder, options.large_mib * MIB))
    return metrics


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.delta", description=__doc__)
    parser.add_argument("--model", type=Path, default=default_model())
    parser.add_argument("--layers", type=int, default=8, help="of the random model; 8 = 64 MiB")
    parser.add_argument("--large-mib", type=int, default=1024)
    parser.add_argument("--quick", action="store_true", help="2 layers, 128 MiB, fewer peers")
    parser.add_argument("--only", action="append", default=[], metavar="KEY")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    if options.quick:
        options.layers, options.large_mib = min(options.layers, 2), min(options.large_mib, 128)
    if not options.model.is_file():
        raise SystemExit(f"cannot measure: {options.model} is missing; 'make run' fetches it")
    cache_dir().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix="delta-") as folder:
        metrics = measure(options, Path(folder))
    rows = judged(metrics)
    if options.only and options.output.is_file():  # a part of the run: the rest stays
        rows = json.loads(options.output.read_text())["metrics"] | rows
    print()
    for key, row in rows.items():
        verdict = "" if "met" not in row else "met" if row["met"] else "MISSED"
        print(f"{key:56} {row['value']!s:>10} {row.get('target', '')!s:8} {verdict}")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"metrics": rows}, indent=2, ensure_ascii=False)
    options.output.write_text(text + "\n")
    picture = options.output.with_suffix(".png")
    words = (str(peers_python()), "-m", "bench.delta_plot", str(options.output), str(picture))
    run(words, {})
    return 0


if __name__ == "__main__":
    sys.exit(main())
