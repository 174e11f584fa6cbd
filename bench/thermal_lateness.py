"""How late the thermal loop's looks are in a real stokerd, and what the loop costs.

    python -m bench.thermal_lateness [--seconds 100] [--quick] [--no-updates]

stokerd with the echo engine on a private bus and a simulated board at its wall; 24 clients stream
without a pause; signed updates are installed one after the other. Two arms: the usual sampling
(100 ms at the wall) and 10 ms. The child is stokerd itself with a stop-watch around the tick
(bench.thermal_watch tells exactly what is late and what is cost). Counted is the time in which the
clients stream; the looks during updates are also told apart (``updating``). A busy machine makes
looks late, so others' load is waited out first, for a minute, and told.
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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.fakes.update_bundles import Operator

from bench.measurement import wait_for_quiet
from bench.thermal_report import Metrics, metric
from stoker.tour import children
from stoker.tour.private_bus import PrivateBus
from stoker_client import Stoker, StokerClientError

RESULTS: Final = Path(__file__).resolve().parent / "results" / "thermal_lateness.json"
CLIENTS: Final = 24
BUNDLES: Final = 12
MODEL_BYTES: Final = 3 << 20
EDGES_MS: Final = (0.5, 1, 2, 5, 10, 20, 50, 100)
LATE_MS, COST_PCT = 50.0, 0.5
ARMS: Final = {"default": "", "10ms": "period_min_s = 0.01\n"}
QUIET_S: Final = 60.0
Span = tuple[float, float]
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


@contextlib.contextmanager
def daemon(home: Path, bus: str, config: str) -> Iterator[Path]:
    """The report's path; the report is there when the block has ended."""
    (home / "stoker.toml").write_text(config)
    report = home / "report.json"
    command = [
        sys.executable,
        "-m",
        "bench.thermal_watch",
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


def bundles(operator: Operator, number: int) -> list[Path]:
    """A chain of models, each some bytes away from the one before."""
    dice = random.Random(1)
    data = bytearray(dice.randbytes(MODEL_BYTES))
    made: list[Path] = []
    before = operator.home / "v0"
    before.write_bytes(data)
    for version in range(1, number + 1):
        say(f"bundle {version} of {number}")
        for _ in range(2000):
            data[dice.randrange(MODEL_BYTES)] ^= 0x10
        after = operator.home / f"v{version}"
        after.write_bytes(data)
        made.append(operator.bundle(version, before, after))
        before = after
    return made


def update(address: str, folders: Sequence[Path], until_s: float) -> list[Span]:
    """Installs one after the other; when each began and ended."""
    spans: list[Span] = []
    with Stoker(address) as stoker:
        for folder in folders:
            if time.monotonic() > until_s:
                break
            began_s = time.monotonic()
            job = stoker.updates.install(folder)
            while (state := stoker.updates.job(job)["State"]) not in ("done", "failed"):
                time.sleep(0.05)
            spans.append((began_s, time.monotonic()))
            say(f"update {len(spans)} {state} after {spans[-1][1] - began_s:.1f} s")
    return spans


def say(text: str) -> None:
    """Progress, apart from what is measured."""
    print(f"… {text}", file=sys.stderr, flush=True)


def arm(name: str, operator: Operator, folders: Sequence[Path], seconds: float) -> Metrics:
    if not wait_for_quiet(QUIET_S):
        say("others use this machine: looks come later than on a quiet one")
    say(f"arm {name}: {seconds:g} s")
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
            streaming = (time.monotonic(), until_s + 2)
            spans = update(bus.address, folders, until_s)
            said, _ = crowd.communicate(timeout=seconds + 60)
        return summary(name, json.loads(report.read_text()), json.loads(said), streaming, spans)


def _wait(address: str) -> None:
    end_s = time.monotonic() + 30
    while time.monotonic() < end_s:
        with contextlib.suppress(StokerClientError), Stoker(address) as stoker:
            if stoker.status()["state"] == "ready":
                return
        time.sleep(0.1)
    raise SystemExit("cannot measure: stokerd is not ready")


def summary(
    name: str, seen: Mapping[str, Any], counts: Sequence[int], crowd: Span, spans: Sequence[Span]
) -> Metrics:
    """Of the time in which the clients streamed (``crowd``); ``spans``: the updates."""
    looks = [look for look in seen["looks"] if within(look[0], [crowd])]
    during = [look for look in looks if within(look[0], spans)]
    length_s = looks[-1][0] - looks[0][0]
    made: Metrics = {}
    stem = f"thermal.lateness.{name}"
    for key, some in (("", looks), ("updating_", during)):
        late_ms = sorted(1000 * look[1] for look in some)
        quantiles = (("p50", 0.5), ("p99", 0.99), ("p99_9", 0.999), ("max", 1.0))
        for q, part in quantiles if some else ():
            value, judged = quantile(late_ms, part), q == "p99_9" and bool(during)
            made[f"{stem}.{key}{q}_ms"] = metric(
                value, "ms", peer=f"{len(some)} looks", target=f"< {LATE_MS:g}" if judged else "",
                met=value < LATE_MS if judged else None,
            )  # fmt: skip
    made |= costs(stem, seen, looks, crowd)
    busy, load = sum(1 for count in counts if count), os.getloadavg()[0]
    told = f"{busy} clients, {len(spans)} updates, load {load:.1f}"
    made[f"{stem}.records_per_s"] = metric(sum(counts) / length_s, "1/s", peer=told)
    made[f"{stem}.histogram"] = histogram([1000 * look[1] for look in looks])
    show(name, made, len(looks))
    return made


def costs(stem: str, seen: Mapping[str, Any], looks: Sequence[Any], crowd: Span) -> Metrics:
    """The loop's thread, and the longest stop of all threads for Python's collector."""
    length_s = looks[-1][0] - looks[0][0]
    ticks = sum(1 for at in seen["ticks"] if within(at, [crowd]))
    pauses = [pause for pause in seen["pauses"] if within(pause[0], [crowd])] or [(0.0, 0.0, 0.0)]
    wall_ms, cpu_ms = (1000 * max(pause[at] for pause in pauses) for at in (1, 2))
    cost_pct = 100 * (looks[-1][2] - looks[0][2]) / length_s
    usual = stem.endswith(".default")
    return {
        f"{stem}.cost_pct": metric(
            cost_pct, "% of a core", target=f"≤ {COST_PCT:g}" if usual else "",
            peer=f"{ticks / length_s:.1f} ticks/s, {len(looks) / length_s:.1f} of them looks",
            met=cost_pct <= COST_PCT if usual else None,
        ),
        f"{stem}.collector_max_ms": metric(wall_ms, "ms", peer=f"of it at most {cpu_ms:.0f} CPU"),
    }  # fmt: skip


def within(at_s: float, spans: Sequence[Span]) -> bool:
    return any(began_s <= at_s <= ended_s for began_s, ended_s in spans)


def quantile(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def histogram(late_ms: Sequence[float]) -> dict[str, object]:
    return {
        f"≥ {low:g} ms": sum(1 for value in late_ms if low <= max(value, 0.0) < high)
        for low, high in zip((0.0, *EDGES_MS), (*EDGES_MS, float("inf")), strict=True)
    }


def show(name: str, made: Metrics, looks: int) -> None:
    for key, entry in made.items():
        if "value" in entry:
            verdict = {True: "met", False: "NOT MET"}.get(entry["met"], "")  # type: ignore[call-overload]
            goal = f"({entry['target']}: {verdict})" if verdict else ""
            what = key.removeprefix("thermal.lateness.")
            print(f"{what:34} {entry['value']:10.2f} {entry['unit']} {goal} {entry['peer']}")
    for edge, number in made[f"thermal.lateness.{name}.histogram"].items():
        print(f"   {name} {edge:>9} {number:7}  {'#' * round(60 * int(str(number)) / looks)}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.thermal_lateness",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=100.0, help="of each arm")
    parser.add_argument(
        "--quick", action="store_true", help="20 s each, 2 updates; keeps no result"
    )
    parser.add_argument("--no-updates", action="store_true")
    parser.add_argument("--arm", choices=ARMS, help="this one only; keeps no result")
    parser.add_argument("--output", type=Path, help=f"instead of {RESULTS.name}")
    parser.add_argument("--clients", metavar="ADDRESS", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.clients:
        clients_main(options.clients, options.seconds)
        return 0
    partial = options.quick or options.arm or options.no_updates
    output = options.output or (None if partial else RESULTS)
    seconds = 20.0 if options.quick else options.seconds
    made: Metrics = {}
    with tempfile.TemporaryDirectory() as place:
        operator = Operator.found(Path(place) / "operator")
        number = 0 if options.no_updates else 2 if options.quick else BUNDLES
        folders = bundles(operator, number)
        for name in [options.arm] if options.arm else ARMS:
            made |= arm(name, operator, folders, seconds)
    if output is not None:
        text = json.dumps({"metrics": made}, indent=1, ensure_ascii=False)
        output.write_text(text + "\n", encoding="utf-8")
    return 0 if all(entry.get("met") is not False for entry in made.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
