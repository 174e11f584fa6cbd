"""OpenMP or ggml's own threads, pinned or free, alone or beside a program that wants one CPU.

    python -m bench.openmp [--rounds 7] [--tokens 96] [--output FILE]

The table of docs/adr/0004-package.md. llama-bench on our libraries; only the CPU backend is another
one, compiled here without OpenMP from the same sources and flags (some minutes, then kept). Two
threads, on CPUs 0 and 1. Decides nothing: half an hour on a quiet machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench import peers
from bench.measurement import SPINCOUNT
from bench.runner_client import default_model
from bench.thermal_report import Metrics, metric
from stoker.tour import children

ROOT: Final = Path(__file__).resolve().parents[1]
_FLAGS: Final = r"""
. .ci/steps/llama.sh
printf '%s\n' "${llama_native_flags[@]}"
echo --
printf '%s\n' "${llama_environment[@]}"
"""
_REFUSAL: Final = "GGML_NATIVE is not compatible with GGML_BACKEND_DL"
_JOBS: Final = str(os.cpu_count() or 1)
_BUSY: Final = ("taskset", "-c", "1", "sh", "-c", "while :; do :; done")


@dataclass(frozen=True, slots=True)
class Arm:
    """``words`` go to llama-bench; ``own`` = the backend without OpenMP."""

    own: bool
    environment: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()


_PINNED: Final = ("--cpu-mask", "0x3", "--cpu-strict", "1")
ARMS: Final = {
    "openmp": Arm(False),
    "openmp-pinned": Arm(False, {"OMP_PROC_BIND": "true", "OMP_PLACES": "{0},{1}"}),
    "own-pinned": Arm(True, words=_PINNED),
    "own-pinned-poll-0": Arm(True, words=(*_PINNED, "--poll", "0")),
}


def flags() -> tuple[list[str], dict[str, str]]:
    """CMake's, of which the last word of OpenMP is no; and what the compiler gets."""
    told = subprocess.run(
        ["bash", "-ec", _FLAGS], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    words, _, rows = told.partition("--\n")
    pairs = (row.split("=", 1) for row in rows.splitlines())
    return [*words.splitlines(), "-DGGML_OPENMP=OFF"], dict(pairs)


def own_backend() -> Path:
    """libggml-cpu.so with ggml's threads; compiled when its flags or the sources are new."""
    source = peers.vendored()
    words, environment = flags()
    build = peers.cache_dir() / "llama-bench" / "without-openmp"
    stamp, built = build / "made-with", build / "bin" / "libggml-cpu.so"
    patches = sorted((ROOT / ".ci/patches").glob("llama-*.patch"))
    texts = [patch.read_text() for patch in patches]
    identity = f"{source}\n{shlex.join(words)}\n{environment}\n{texts}"
    if built.is_file() and stamp.is_file() and stamp.read_text() == identity:
        return built
    recipe = source / "ggml" / "src" / "ggml-cpu" / "CMakeLists.txt"
    rows = recipe.read_text().splitlines(keepends=True)
    # As bootstrap does for the libraries that are compared with (.ci/steps/llama.sh says why).
    recipe.write_text("".join(row for row in rows if _REFUSAL not in row))
    for patch in patches:
        mend(source, patch)
    for command in (
        ["cmake", "-S", str(source), "-B", str(build), *words],
        ["cmake", "--build", str(build), "--target", "ggml-cpu", "--parallel", _JOBS],
    ):
        print("+", shlex.join(command), flush=True)
        done = subprocess.run(command, env={**os.environ, **environment}, check=False)
        if done.returncode != 0:
            raise SystemExit("cannot build the backend without OpenMP: see above")
    stamp.write_text(identity)
    return built


def mend(source: Path, patch: Path) -> None:
    """Once: the sources stay unpacked."""
    command = ["patch", "--silent", "--fuzz=0", "-p1", "-d", str(source), "-i", str(patch)]
    there = subprocess.run([*command, "--reverse", "--dry-run"], check=False, capture_output=True)
    if there.returncode != 0:
        subprocess.run([*command, "--forward"], check=True)


def run(arm: Arm, backend: Path, model: Path, tokens: int) -> tuple[float, float]:
    """(tokens a second as llama-bench says, seconds of CPU in all)."""
    command = [
        str(peers.llama_bench()), "-m", str(model), "-p", "0", "-n", str(tokens), "-t", "2",
        "-r", "1", "-o", "json", *arm.words,
    ]  # fmt: skip
    own = {"GGML_BACKEND_PATH": str(backend)} if arm.own else peers.peer_environment()
    environment = {**os.environ, **own, "GOMP_SPINCOUNT": SPINCOUNT, **arm.environment}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(f"cannot measure: llama-bench: {done.stderr[-500:]}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return float(json.loads(done.stdout)[0]["avg_ts"]), cpu_s


def series(label: str, backend: Path, model: Path, options: argparse.Namespace) -> Metrics:
    """Interleaved. What one token costs of CPU is what the others add: loading is left out."""
    tokens: int = options.tokens
    alone = {name: run(arm, backend, model, 1)[1] for name, arm in ARMS.items()}
    got: dict[str, list[tuple[float, float]]] = {name: [] for name in ARMS}
    for _ in range(options.rounds):
        for name, arm in ARMS.items():
            got[name].append(run(arm, backend, model, tokens))
    found: Metrics = {}
    for name, rows in got.items():
        rates = [rate for rate, _ in rows]
        cpu_ms = statistics.median((cpu_s - alone[name]) / (tokens - 1) * 1e3 for _, cpu_s in rows)
        stem = f"openmp.{label}.{name}"
        found[f"{stem}.tokens_per_s"] = metric(statistics.median(rates), "tok/s")
        found[f"{stem}.cpu_ms_per_token"] = metric(cpu_ms, "ms")
        print(f"{label:8}{name:20}{statistics.median(rates):7.1f} tok/s (min {min(rates):.1f})"
              f"{cpu_ms:8.1f} ms of CPU a token", flush=True)  # fmt: skip
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.openmp", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=96, help="more than one")
    parser.add_argument("--model", type=Path, default=default_model())
    parser.add_argument("--output", type=Path, help="the medians as JSON; default: only a table")
    options = parser.parse_args(argv)
    backend = own_backend()
    found = series("quiet", backend, options.model, options)
    busy = children.start(list(_BUSY))
    try:
        found |= series("busy", backend, options.model, options)
    finally:
        children.stop(busy, 5.0)
    if options.output:
        options.output.write_text(json.dumps({"metrics": found}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
