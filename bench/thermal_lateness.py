"""How late the thermal loop's ticks are in a real stokerd, and what the loop costs.

    python -m bench.thermal_lateness [--seconds 100] [--no-updates]

stokerd with the echo engine on a private bus and a simulated board at its wall; 24 clients
stream; signed updates are installed one after the other. Two arms: the usual sampling (100 ms at
the wall) and 10 ms. The child is stokerd itself, with a stop-watch around the tick: ``late``
is its start after the time that the period set, ``cost`` the thread's CPU time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.fakes.update_bundles import Operator

from bench.thermal_report import Metrics, metric
from stoker.services.thermal import ThermalService
from stoker.tour import children
from stoker.tour.private_bus import PrivateBus
from stoker_client import Stoker, StokerClientError

RESULTS: Final = Path(__file__).resolve().parent / "results" / "thermal_lateness.json"
CLIENTS: Final = 24
BUNDLES: Final = 4
MODEL_BYTES: Final = 3 << 20
EDGES_MS: Final = (0.5, 1, 2, 5, 10, 20, 50, 100)
LATE_MS, COST_PCT = 50.0, 0.5
ARMS: Final = {"default": "", "10ms": "period_min_s = 0.01\n"}
_CONFIG: Final = """
[models.chat]
path = "{model}"
context_tokens = 512
[inference]
queue_limit = 64
[updates]
trust = "{trust}"
retry_s = 0.5
[thermal]
board = "sim:pi5-bare,ambient=45,warm=77"
{arm}"""


@dataclass
class StopWatch:
    """Seconds that each tick was late; CPU seconds of the thread at its first and last tick."""

    late_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)
    due_s: float = 0.0

    def around(self, tick: Any) -> Any:
        def timed(service: ThermalService, *, look: bool = True) -> None:
            if threading.current_thread().name != "thermal":  # the first one, at the start
                tick(service, look=look)
                return
            now_s = time.monotonic()
            if look and self.due_s:
                self.late_s.append(now_s - self.due_s)
            tick(service, look=look)
            self.cpu_s = [*self.cpu_s[:1], time.thread_time()]
            self.wall_s = [*self.wall_s[:1], now_s]
            if look:
                self.due_s = now_s + service.snapshot().period_s

        return timed


def child(report: Path, words: Sequence[str]) -> int:
    """stokerd with the stop-watch; its numbers go to ``report`` when it ends."""
    from stoker.main import entry

    watch = StopWatch()
    ThermalService.tick = watch.around(ThermalService.tick)  # type: ignore[method-assign]
    try:
        return entry(words)
    finally:
        report.write_text(json.dumps(vars(watch)))


@contextlib.contextmanager
def daemon(home: Path, bus: str, config: str) -> Iterator[Path]:
    """The report's path; the report is there when the block has ended."""
    (home / "stoker.toml").write_text(config)
    report = home / "report.json"
    command = [
        sys.executable,
        "-m",
        "bench.thermal_lateness",
        "--child",
        str(report),
        "--engine=echo",
    ]
    command += [f"--bus={bus}", f"--config={home / 'stoker.toml'}"]
    command += [f"--state-dir={home / 'state'}", f"--runtime-dir={home / 'run'}"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with (home / "log").open("wb") as log:
        process = children.start(command, env=environment, stderr=log)
    try:
        yield report
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def chatter(address: str, number: int, done: threading.Event, count: list[int]) -> None:
    """One client: a connection of its own, streams without a pause."""
    words = " ".join(f"w{number}.{i}" for i in range(60))
    while not done.is_set():
        try:
            with Stoker(address) as stoker:
                while not done.is_set():
                    count[number] += sum(1 for _ in stoker.stream(words))
        except StokerClientError:
            done.wait(0.2)  # busy, or the model is being changed


def clients_main(address: str, seconds: float) -> None:
    done, count = threading.Event(), [0] * CLIENTS
    threads = [threading.Thread(target=chatter, args=(address, n, done, count), daemon=True)
               for n in range(CLIENTS)]  # fmt: skip
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    done.set()
    for thread in threads:
        thread.join(5)
    print(json.dumps(count))


def bundles(operator: Operator) -> list[Path]:
    """A chain of models, each some bytes away from the one before."""
    dice = random.Random(1)
    data = bytearray(dice.randbytes(MODEL_BYTES))
    made = []
    before = operator.home / "v0"
    before.write_bytes(data)
    for version in range(1, BUNDLES + 1):
        for _ in range(2000):
            data[dice.randrange(MODEL_BYTES)] ^= 0x10
        after = operator.home / f"v{version}"
        after.write_bytes(data)
        made.append(operator.bundle(version, before, after))
        before = after
    return made


def update(address: str, folders: Sequence[Path], until_s: float) -> list[float]:
    """Installs one after the other; seconds that each took."""
    took = []
    with Stoker(address) as stoker:
        for folder in folders:
            if time.monotonic() > until_s:
                break
            began_s = time.monotonic()
            job = stoker.updates.install(folder)
            while stoker.updates.job(job)["State"] not in ("done", "failed"):
                time.sleep(0.05)
            took.append(time.monotonic() - began_s)
    return took


def arm(name: str, operator: Operator, folders: Sequence[Path], seconds: float) -> Metrics:
    with tempfile.TemporaryDirectory() as place, PrivateBus() as bus:
        home = Path(place)
        text = _CONFIG.format(model=operator.home / "v0", trust=operator.trust, arm=ARMS[name])
        with daemon(home, bus.address, text) as report:
            _wait(bus.address)
            command = [sys.executable, "-m", "bench.thermal_lateness", "--clients", bus.address,
                       "--seconds", str(seconds)]  # fmt: skip
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
            crowd = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
            time.sleep(2.0)
            until_s = time.monotonic() + seconds - 4
            took = update(bus.address, folders, until_s)
            said, _ = crowd.communicate(timeout=seconds + 60)
        return summary(name, json.loads(report.read_text()), json.loads(said), took)


def _wait(address: str) -> None:
    end_s = time.monotonic() + 30
    while time.monotonic() < end_s:
        with contextlib.suppress(StokerClientError), Stoker(address) as stoker:
            if stoker.status()["state"] == "ready":
                return
        time.sleep(0.1)
    raise SystemExit("cannot measure: stokerd is not ready")


def summary(
    name: str, seen: dict[str, list[float]], counts: list[int], took: list[float]
) -> Metrics:
    late_ms = sorted(1000 * value for value in seen["late_s"])
    cost_pct = (
        100 * (seen["cpu_s"][-1] - seen["cpu_s"][0]) / (seen["wall_s"][-1] - seen["wall_s"][0])
    )
    rows = {q: late_ms[min(len(late_ms) - 1, int(q * len(late_ms)))] for q in (0.5, 0.99, 0.999)}
    busy = sum(1 for count in counts if count)
    told = (
        f"{len(late_ms)} ticks, {busy} clients, {len(took)} updates, load {os.getloadavg()[0]:.1f}"
    )
    print(f"{name}: p50 {rows[0.5]:.2f} p99 {rows[0.99]:.2f} p99.9 {rows[0.999]:.2f} "
          f"max {late_ms[-1]:.2f} ms; {cost_pct:.2f} % of a core; {told}")  # fmt: skip
    for low, high in zip((0.0, *EDGES_MS), (*EDGES_MS, float("inf")), strict=True):
        number = sum(1 for value in late_ms if low <= max(value, 0.0) < high)
        print(f"   {low:6g} .. {high:6g} ms {number:7d}  {'#' * round(60 * number / len(late_ms))}")
    judged = name == "default"
    made = {
        f"thermal.lateness.{name}.p99_9_ms": metric(
            rows[0.999], "ms", peer=told, target=f"< {LATE_MS:g}", met=rows[0.999] < LATE_MS
        ),
        f"thermal.lateness.{name}.p50_ms": metric(rows[0.5], "ms"),
        f"thermal.lateness.{name}.max_ms": metric(late_ms[-1], "ms"),
        f"thermal.lateness.{name}.cost_pct": metric(
            cost_pct, "% of a core", target=f"≤ {COST_PCT:g}" if judged else "",
            met=cost_pct <= COST_PCT if judged else None,
        ),
    }  # fmt: skip
    edges = (0.0, *EDGES_MS)
    made[f"thermal.lateness.{name}.histogram"] = {
        f"≥ {low:g} ms": sum(1 for v in late_ms if low <= max(v, 0.0) < high)
        for low, high in zip(edges, (*EDGES_MS, float("inf")), strict=True)
    }
    return made


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["--child"]:
        return child(Path(words[1]), words[2:])
    parser = argparse.ArgumentParser(prog="python -m bench.thermal_lateness", description=__doc__)
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--no-updates", action="store_true")
    parser.add_argument("--clients", metavar="ADDRESS", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.clients:
        clients_main(options.clients, options.seconds)
        return 0
    made: Metrics = {}
    with tempfile.TemporaryDirectory() as place:
        operator = Operator.found(Path(place) / "operator")
        folders = [] if options.no_updates else bundles(operator)
        (operator.home / "v0").touch()
        for name in ARMS:
            made |= arm(name, operator, folders, options.seconds)
    RESULTS.write_text(json.dumps({"metrics": made}, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
