"""``stokerctl rt probe``: how late this machine wakes a sleeping thread, in four arms.

plain, pinned to one CPU, FIFO, and both; the pinned ones in stoker.slice's partition, where there
is one and we are root. Each arm is a process of its own: cyclictest where it is
installed, else ours. No arm changes a global setting; one that is not permitted says why.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import subprocess
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from stoker.cli import latency, rt_place
from stoker.cli.bars import Bar
from stoker.cli.screens import columns
from stoker.cli.terminal import Terminal
from stoker_client.errors import StokerClientError

PRIORITY: Final = 10
ARMS: Final = (("plain", False, False), ("pinned", True, False), ("fifo", False, True),
               ("pinned+fifo", True, True))  # fmt: skip
_HISTOGRAM_US: Final = 100_000
_MARGIN_S: Final = 30.0


def run(args: Namespace, terminal: Terminal) -> int:
    place = rt_place.find(args.cpu)
    tool = shutil.which("cyclictest") if args.tool != "own" else None
    if args.tool == "cyclictest" and tool is None:
        raise StokerClientError(
            "unavailable", "cannot run cyclictest: it is not installed",
            hint="package rt-tests; --tool own needs nothing",
        )  # fmt: skip
    arms: dict[str, dict[str, object]] = {}
    bar = Bar(shown=sys.stderr.isatty() and not terminal.as_json)
    try:
        for number, (name, pinned, fifo) in enumerate(ARMS):
            bar.update(name, number / len(ARMS))
            arms[name] = _arm(
                tool, args, place if pinned else rt_place.ANYWHERE, PRIORITY if fifo else 0
            )
    finally:
        bar.close()
    facts: dict[str, object] = {
        "tool": "cyclictest" if tool else "stoker",
        "kernel": platform.release(),
        "preemption": _preemption(),
        "cpu": place.cpu,
        "pinned_in": "partition" if place.partition else "shared",
        "partition": place.partition,
        "note": place.note,
        "interval_us": args.interval_us,
        "seconds": args.seconds,
        "arms": arms,
    }
    if terminal.as_json:
        terminal.json(facts)
    else:
        terminal.write("".join(line + "\n" for line in lines(facts)))
    return 0


def _arm(
    tool: str | None, args: Namespace, place: rt_place.Place, priority: int
) -> dict[str, object]:
    command = (
        _cyclictest(tool, args, place.cpu, priority)
        if tool
        else [sys.executable, "-P", "-m", "stoker.cli.rt_sleeper", str(args.seconds),
              str(args.interval_us), str(place.cpu), str(priority)]
    )  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    try:
        done = subprocess.run(
            [*place.before, *command], env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=args.seconds + _MARGIN_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"refused": "it did not end in time"}
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"status {done.returncode}"]
        return {"refused": _explain(last[0], priority)}
    if tool:
        return latency.summary(latency.read_cyclictest(done.stdout))
    found: Mapping[str, Any] = json.loads(done.stdout)
    if "refused" in found:
        return {"refused": _explain(str(found["refused"]), priority)}
    counts = {int(late): int(count) for late, count in found["counts"].items()}
    return {**latency.summary(counts), "memory_locked": bool(found["locked"])}


def _cyclictest(tool: str, args: Namespace, cpu: int, priority: int) -> list[str]:
    """``--default-system``: without it, it would forbid the CPUs to idle and measure another
    machine than the one that serves."""
    loops = max(1, int(args.seconds * 1e6 / args.interval_us))
    command = [
        tool,
        "-q",
        "-m",
        "-t1",
        "--default-system",
        f"-i{args.interval_us}",
        f"-l{loops}",
        f"-h{_HISTOGRAM_US}",
    ]
    command += [f"-a{cpu}"] if cpu >= 0 else []
    return [*command, *([f"-p{priority}"] if priority else ["-p0", "--policy=other"])]


def _explain(reason: str, priority: int) -> str:
    """EPERM has two causes, which a reader cannot tell apart from the word."""
    if not priority or "not permitted" not in reason:
        return reason
    if os.geteuid() == 0:
        return (
            f"{reason}: RT_GROUP_SCHED gives this cgroup no real-time (or a container forbids it)"
        )
    limit = resource.getrlimit(resource.RLIMIT_RTPRIO)[0]
    if limit < priority:
        return f"{reason}: RLIMIT_RTPRIO is {limit}; as root it works (sudo stokerctl rt probe)"
    return reason


def _preemption() -> str:
    words = Path("/proc/version").read_text(encoding="utf-8").split()
    return next((word for word in words if word.startswith("PREEMPT")), "none")


def lines(facts: Mapping[str, Any]) -> list[str]:
    """For people: a line for each arm, then the histogram."""
    arms: Mapping[str, Mapping[str, Any]] = facts["arms"]
    measured = {name: arm for name, arm in arms.items() if "refused" not in arm}
    rows: list[Sequence[str]] = [("ARM", "p50", "p99.9", "max", "WAKE-UPS")]
    for name, arm in measured.items():
        late = [f"{arm[key]} µs" for key in ("p50_us", "p99_9_us", "max_us")]
        rows.append((name, *late, str(arm["samples"])))
    refused = [f"{n}: not measured: {a['refused']}" for n, a in arms.items() if "refused" in a]
    head = (
        f"kernel {facts['kernel']}, {facts['preemption']}; every {facts['interval_us']} µs for "
        f"{facts['seconds']:g} s, pinned to CPU {facts['cpu']}; measured by {facts['tool']}"
    )
    where = (
        f"pinned arms: in the partition of {rt_place.SLICE} (CPUs {facts['partition']})"
        if facts["partition"]
        else f"pinned arms: on a CPU that others use too: {facts['note']}"
    )
    if not measured:
        return [head, where, "", *refused]
    return [head, where, "", *columns(rows), *refused, "", *_histogram(measured)]


def _histogram(arms: Mapping[str, Mapping[str, Any]]) -> list[str]:
    counts = {
        name: {bucket["up_to_us"]: bucket["count"] for bucket in arm["histogram"]}
        for name, arm in arms.items()
    }
    edges = [e for e in (*latency.EDGES_US, 0) if any(e in c for c in counts.values())]
    rows: list[Sequence[str]] = [("up to", *counts)]
    for edge in edges:
        shown = f"{edge} µs" if edge else "more"
        rows.append((shown, *(str(count.get(edge, "")) for count in counts.values())))
    return columns(rows)
