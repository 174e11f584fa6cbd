"""``make bench NAME=footprint``: what Stoker costs a device that is cool and idle.

Starts stokerd on a private bus as systemd would (readiness through NOTIFY_SOCKET), once without a
model and once with the echo engine as a runner, and looks into /proc. Sizes are those of the
packages in build/deb. Nothing here is timed while it runs on a busy machine twice: the best of
some starts counts, since only the machine can make one slower.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stoker.tour import children
from stoker.tour.private_bus import PrivateBus

ROOT: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = ROOT / "bench" / "results" / "footprint.json"
READY_LIMIT_S: Final = 30.0
SETTLE_S: Final = 5.0  # the first seconds after a start are no idle

TARGETS: Final = {
    "stokerd_idle_pss_mb": 40.0,
    "ready_s": 1.0,
    "stokerd_wakeups_per_s": 5.0,
    "stokerd_serving_wakeups_per_s": 5.0,
    "runner_wakeups_per_s": 5.0,
}
"""At most so much; the other numbers are for knowing."""

Metrics = dict[str, tuple[float, str]]


@dataclass(frozen=True, slots=True)
class Started:
    process: subprocess.Popen[bytes]
    ready_s: float


@contextmanager
def stokerd(*words: str) -> Iterator[Started]:
    """A stokerd of its own, ready; ``words`` go to its command line."""
    with PrivateBus() as bus, tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "stoker.toml").write_text("")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(str(here / "notify"))
            manager.settimeout(READY_LIMIT_S)
            command = [
                sys.executable, "-m", "stoker.main", "--bus", bus.address, *words,
                "--config", str(here / "stoker.toml"), "--log-level", "error",
                "--state-dir", folder, "--runtime-dir", folder,
            ]  # fmt: skip
            environment = {**os.environ, "NOTIFY_SOCKET": str(here / "notify")}
            began_s = time.monotonic()
            process = subprocess.Popen(command, env=environment)
            try:
                yield Started(process, _wait_ready(manager, began_s))
            finally:
                children.stop(process, 30.0)


def _wait_ready(manager: socket.socket, began_s: float) -> float:
    while True:
        if b"READY=1" in manager.recv(4096):
            return time.monotonic() - began_s


def pss_mb(pid: int) -> float:
    for row in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if row.startswith("Pss:"):
            return int(row.split()[1]) / 1000
    return 0.0


def threads(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())


def switches(pid: int) -> int:
    """Times a thread gave up the CPU to wait: each is a wake-up later."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        for row in (task / "status").read_text().splitlines():
            if row.startswith("voluntary_ctxt_switches:"):
                total += int(row.split()[1])
    return total


def wakeups_per_s(pid: int, seconds: float) -> float:
    before, began_s = switches(pid), time.monotonic()
    time.sleep(seconds)
    return (switches(pid) - before) / (time.monotonic() - began_s)


def runner_of(pid: int) -> int:
    """The child that stokerd started; waits for it."""
    until_s = time.monotonic() + READY_LIMIT_S
    while time.monotonic() < until_s:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        others = [
            child
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
        if children or others:
            return int((children or others)[0])
        time.sleep(0.05)
    raise SystemExit("cannot measure: stokerd started no runner")


def ready_s(starts: int) -> float:
    times = []
    for _ in range(starts):
        with stokerd() as started:
            times.append(started.ready_s)
    return min(times)


def without_model(seconds: float) -> Metrics:
    with stokerd() as started:
        pid = started.process.pid
        time.sleep(SETTLE_S)
        wakeups = wakeups_per_s(pid, seconds)
        return {
            "stokerd_idle_pss_mb": (pss_mb(pid), "MB"),
            "stokerd_threads": (threads(pid), "threads"),
            "stokerd_wakeups_per_s": (wakeups, "1/s"),
        }


def with_runner(seconds: float) -> Metrics:
    """The echo engine: what the two processes and their heartbeat cost, without llama.cpp."""
    with (
        tempfile.NamedTemporaryFile(suffix=".gguf") as model,
        stokerd("--engine", "echo", "--model", model.name) as started,
    ):
        pid = started.process.pid
        runner = runner_of(pid)
        time.sleep(SETTLE_S)
        before, began_s = (switches(pid), switches(runner)), time.monotonic()
        time.sleep(seconds)
        passed_s = time.monotonic() - began_s
        return {
            "runner_idle_pss_mb": (pss_mb(runner), "MB"),
            "runner_threads": (threads(runner), "threads"),
            "stokerd_serving_wakeups_per_s": ((switches(pid) - before[0]) / passed_s, "1/s"),
            "runner_wakeups_per_s": ((switches(runner) - before[1]) / passed_s, "1/s"),
        }


def gateway() -> Metrics:
    """The REST door, while nobody asks; where it is started by its sockets it then leaves."""
    with PrivateBus() as bus, tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "gateway.toml").write_text("")
        command = [
            sys.executable, "-m", "stoker.gateway.main", "--bus", bus.address,
            "--config", f"{folder}/gateway.toml", "--unix", f"{folder}/gateway.sock",
        ]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            try:
                if process.stdout is None or b"listening" not in process.stdout.readline():
                    raise SystemExit("cannot measure: stoker-gateway does not listen")
                time.sleep(SETTLE_S)
                return {"gateway_idle_pss_mb": (pss_mb(process.pid), "MB")}
            finally:
                children.stop(process, 30.0)


def package_sizes(folder: Path) -> Metrics:
    """{} until "make deb" has run."""
    found: Metrics = {}
    machine = subprocess.run(
        ["dpkg", "--print-architecture"], check=False, capture_output=True, text=True
    ).stdout.strip()
    for deb in sorted(folder.glob("*.deb")):
        name, _, kind = deb.stem.partition("_")
        if kind.rpartition("_")[2] not in (machine, "all"):
            continue
        installed = subprocess.run(
            ["dpkg-deb", "-f", deb, "Installed-Size"], check=True, capture_output=True, text=True
        )
        key = name.replace("-", "_")
        found[f"{key}_package_mb"] = (deb.stat().st_size / 1e6, "MB")
        found[f"{key}_installed_mb"] = (int(installed.stdout) * 1024 / 1e6, "MB")
    return found


def judged(metrics: Metrics) -> dict[str, dict[str, object]]:
    out: dict[str, dict[str, object]] = {}
    for key, (value, unit) in metrics.items():
        row: dict[str, object] = {"value": round(value, 3), "unit": unit}
        if key in TARGETS:
            row |= {"target": f"≤ {TARGETS[key]:g} {unit}", "met": value <= TARGETS[key]}
        out[f"footprint.{key}"] = row
    return out


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.footprint", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to count wake-ups")
    parser.add_argument("--starts", type=int, default=7)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    metrics: Metrics = {"ready_s": (ready_s(options.starts), "s")}
    metrics |= without_model(options.seconds)
    metrics |= with_runner(options.seconds)
    metrics |= gateway()
    metrics |= package_sizes(ROOT / "build" / "deb")
    rows = judged(metrics)
    for key, row in rows.items():
        verdict = "" if "met" not in row else "met" if row["met"] else "MISSED"
        print(
            f"{key:48} {row['value']!s:>9} {row['unit']!s:8} {row.get('target', '')!s:14}{verdict}"
        )
    options.output.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"metrics": rows}, indent=2, ensure_ascii=False)
    options.output.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
