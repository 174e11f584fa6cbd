"""``make bench NAME=inference``: our inference path against its peers, in one run.

Every number is a ratio of interleaved pairs on the same machine, library and flags, so
that a noisy neighbour hits both. Add a measurement to ``REGISTRY``; nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.over_bus import OverBus, first_token_added
from bench.pairs import Pair, Summary, summarize
from bench.peers import library_dir, llama_bench
from bench.runner_client import RunnerClient, default_model
from stoker.config.schema import RunnerConfig
from stoker.events.runner import Generate, Sampling

RESULTS: Final = Path(__file__).resolve().parent / "results" / "inference.json"
NOISE_LIMIT: Final = 0.25
SPINCOUNT: Final = os.environ.get("GOMP_SPINCOUNT", str(RunnerConfig().gomp_spincount))


@dataclass(frozen=True, slots=True)
class Setting:
    model: Path
    threads: int
    tokens: int
    pairs: int
    quiet_s: float = 20.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """``run`` yields pairs as they come; ``higher`` = more is better."""

    key: str
    title: str
    unit: str
    peer: str
    target: float
    run: Callable[[Setting], Iterator[Pair]]
    higher: bool = True
    difference: bool = False  # what is added to the peer's number, not the ratio to it

    def met(self, summary: Summary) -> bool:
        """A median between two far ends of noise proves nothing, so it does not count."""
        limit = self.target if self.difference else NOISE_LIMIT * summary.ratio
        if summary.high - summary.low > limit:
            return False
        return summary.ratio >= self.target if self.higher else summary.ratio <= self.target


def decode_over_frames(setting: Setting) -> Iterator[Pair]:
    """Greedy decode of one job, from the first delta to the last, as its reader sees it."""
    with loaded_runner(setting) as runner:
        for index in range(setting.pairs):
            wait_for_quiet(setting.quiet_s)
            if index % 2:  # whoever is second finds a warmer machine
                theirs = bench_tokens_s(setting)
                yield runner_tokens_s(runner, setting, f"job{index}"), theirs
            else:
                ours = runner_tokens_s(runner, setting, f"job{index}")
                yield ours, bench_tokens_s(setting)


def decode_over_bus(setting: Setting) -> Iterator[Pair]:
    """The same as a client of stokerd sees it: text records of a pipe it got over D-Bus."""
    over = OverBus(setting.model, setting.threads)
    try:
        over.tokens_s(setting.tokens)
        for index in range(setting.pairs):
            wait_for_quiet(setting.quiet_s)
            if index % 2:
                theirs = bench_tokens_s(setting)
                yield over.tokens_s(setting.tokens), theirs
            else:
                ours = over.tokens_s(setting.tokens)
                yield ours, bench_tokens_s(setting)
    finally:
        over.close()


def added_first_token(setting: Setting) -> Iterator[Pair]:
    """Submit to first byte over D-Bus, and the engine alone in this process (100 pairs)."""
    wait_for_quiet(setting.quiet_s)
    return first_token_added(setting.model, setting.threads, max(100, setting.pairs))


REGISTRY: Final = (
    Measurement(
        key="first_token_added_ms",
        title="time to first token that the bus and the processes add",
        unit="ms",
        peer="the same engine in process, same prompt, no cache",
        target=2.0,
        run=added_first_token,
        higher=False,
        difference=True,
    ),
    Measurement(
        key="decode_bus_tok_s",
        title="decode through D-Bus",
        unit="tok/s",
        peer="llama-bench tg, same libraries and flags",
        target=0.97,
        run=decode_over_bus,
    ),
    Measurement(
        key="decode_runner_tok_s",
        title="decode in the runner, over its frames",
        unit="tok/s",
        peer="llama-bench tg, same libraries and flags",
        target=0.97,
        run=decode_over_frames,
    ),
)


def wait_for_quiet(limit_s: float, *, busy: float = 0.1) -> bool:
    """Waits until others use less than ``busy`` of the machine; False = they did not stop."""
    until_s = time.monotonic() + limit_s
    while time.monotonic() < until_s:
        before = _cpu_ticks()
        time.sleep(0.25)
        after = _cpu_ticks()
        if after[0] - before[0] < busy * (after[1] - before[1]):
            return True
    return False


def _cpu_ticks() -> tuple[int, int]:
    """(busy, all) of all CPUs since boot; idle and iowait are the 4th and 5th number."""
    numbers = [int(part) for part in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return sum(numbers) - numbers[3] - numbers[4], sum(numbers)


@contextmanager
def loaded_runner(setting: Setting) -> Iterator[RunnerClient]:
    with RunnerClient("llama", environment={"GOMP_SPINCOUNT": SPINCOUNT}) as runner:
        runner.hello()
        threads = setting.threads
        runner.load(setting.model, threads=threads, threads_batch=threads, context_tokens=2048)
        yield runner


def runner_tokens_s(runner: RunnerClient, setting: Setting, job: str) -> float:
    """Tokens a second between the first and the last frame of a job.

    The bytes are not parsed until the job is done: a busy reader on the second core would
    be measured as our slowness.
    """
    request = Generate(
        job, raw=True, prompt=".", max_tokens=setting.tokens, reasoning=False,
        sampling=Sampling(temperature=0.0),
    )  # fmt: skip
    runner.send(request)
    runner.socket.settimeout(120.0)
    data, first_s, last_s = _drain(runner.socket)
    made = json.loads(b'{"x":' + data[data.rindex(b'"usage":') + 8 :].split(b"}")[0] + b"}}")
    return float((made["x"]["completion_tokens"] - 1) / (last_s - first_s))


def _drain(sock: socket.socket) -> tuple[bytes, float, float]:
    data = bytearray()
    first_s = 0.0
    while b'"done":' not in data[-2048:]:
        part = sock.recv(1 << 16)
        if not part:
            raise SystemExit("cannot measure: the runner died")
        if not first_s and b'"deltas"' in part:
            first_s = time.monotonic()
        data += part
    return bytes(data), first_s, time.monotonic()


def bench_tokens_s(setting: Setting) -> float:
    """llama-bench's own number for text generation at depth 0 (it warms up first)."""
    command = [
        str(llama_bench()), "-m", str(setting.model), "-t", str(setting.threads), "-p", "0",
        "-n", str(setting.tokens), "-r", "1", "-fa", "auto", "-ngl", "0", "-o", "json",
    ]  # fmt: skip
    backend = str(library_dir() / "libggml-cpu.so")  # a file of its own, as for our runner
    environment = {**os.environ, "GOMP_SPINCOUNT": SPINCOUNT, "GGML_BACKEND_PATH": backend}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"cannot measure: llama-bench: {done.stderr.decode()[-500:]}")
    return float(json.loads(done.stdout)[0]["avg_ts"])


def measure(setting: Setting, keys: list[str]) -> dict[str, dict[str, object]]:
    """Runs the chosen measurements; prints a line for each pair and a table at the end."""
    metrics: dict[str, dict[str, object]] = {}
    for item in REGISTRY:
        if keys and item.key not in keys:
            continue
        print(f"{item.title} ({item.unit}) against {item.peer}", flush=True)
        pairs: list[Pair] = []
        for ours, theirs in item.run(setting):
            pairs.append((ours, theirs))
            print(f"  {ours:9.2f} {theirs:9.2f}   {ours / theirs:.3f}", flush=True)
        summary = summarize(pairs, difference=item.difference)
        metrics[item.key] = {
            "value": round(summary.value, 3),
            "unit": item.unit,
            "peer": round(summary.peer, 3),
            "difference" if item.difference else "ratio": round(summary.ratio, 4),
            "interval": [round(summary.low, 4), round(summary.high, 4)],
            "pairs": summary.pairs,
            "target": item.target,
            "met": item.met(summary),
        }
    return metrics


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=default_model())
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--quiet-s", type=float, default=20.0, help="wait so long for others")
    parser.add_argument("--only", action="append", default=[], metavar="KEY")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    setting = Setting(
        options.model, options.threads, options.tokens, options.pairs, options.quiet_s
    )
    if not setting.model.is_file():
        raise SystemExit(f"cannot measure: {setting.model} is missing; 'make run' fetches it")
    metrics = measure(setting, options.only)
    print(f"\n{'metric':28} {'ours':>9} {'peer':>9} {'ratio':>7} {'95 % interval':>17} target")
    for key, row in metrics.items():
        print(
            f"{key:28} {row['value']:9} {row['peer']:9} "
            f"{row.get('ratio', row.get('difference')):7} {row['interval']!s:>17} "
            f"{row['target']} {'met' if row['met'] else 'MISSED'}"
        )
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps({"metrics": metrics}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
