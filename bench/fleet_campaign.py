"""A thousand devices in one campaign: the real fleet client, store and MQTT in a few processes,
the real operator's tool in its own, and one device in ten with a fault.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from tests.fakes.fleet_device import FAULTS, FleetDevice, Home
from tests.fakes.fleet_operator import FleetOperator
from tests.fakes.update_bundles import Operator
from tests.integration import broker_rig
from tests.integration.broker_rig import ROOT, Broker, peer

A_PROCESS: Final = 120
"""Devices: each has half a dozen descriptors, and the MQTT library's select() takes 1024."""
ONLINE_LIMIT_S: Final = 600.0
END_LIMIT_S: Final = 900.0
FAULTY: Final = 10  # one in so many
GROUP: Final = "blue"
ENV: Final = {
    **os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    "STOKER_OTA_PASSPHRASE": "correct horse",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """``wrong``: devices that ended in another state than they should have."""

    devices: int
    faulty: int
    wrong: int
    again: int  # installations beyond one a device
    took_s: float
    device_mb: float
    broker_mb: float
    phase: str


def fault_of(number: int) -> str:
    return FAULTS[number // FAULTY % len(FAULTS)] if number % FAULTY == 0 else ""


def run(devices: int) -> Outcome:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 20_000)), hard))
    here = "/dev/shm" if Path("/dev/shm").is_dir() else None  # disks are not what is measured
    with tempfile.TemporaryDirectory(dir=here) as folder:
        home = Path(folder)
        maker = Operator.found(home / "maker")
        broker = Broker(home / "broker", more="max_queued_messages 0\nlog_dest none")
        with broker_rig.started(broker):
            return _campaign(broker, maker, home, devices)


def _campaign(broker: Broker, maker: Operator, home: Path, devices: int) -> Outcome:
    _groups(broker, maker, devices)
    pipes, processes = [], []
    context = multiprocessing.get_context("spawn")
    count = -(-devices // A_PROCESS)
    for part in range(count):
        near, far = multiprocessing.Pipe()
        numbers = list(range(part, devices, count))
        address = f"mqtt://127.0.0.1:{broker.port}"
        child = context.Process(target=live, args=(numbers, address, str(home), far), daemon=True)
        child.start()
        processes.append(child)
        pipes.append(near)
    try:
        device_mb = sum(_said(pipe, ONLINE_LIMIT_S)["mb"] for pipe in pipes) / devices
        began_s = time.monotonic()
        words = ["chat", "--version", "2", "--group", GROUP, "--id", "c-1", "--steps", "5,25,100",
                 "--success", "80", "--abort", "20"]  # fmt: skip
        _tool(broker, maker, "start", *words)
        _tool(broker, maker, "watch", "c-1")
        installed = _ends(pipes, devices)
        took_s = time.monotonic() - began_s
        report = _tool(broker, maker, "report", "c-1")
    finally:
        for child in processes:
            child.terminate()
            child.join(10)
    told = {name: found["state"] for name, found in report["devices"].items()}
    wrong = 0
    for number in range(devices):
        bad = fault_of(number) == "bad-hash"
        right = ("failed", 1) if bad else ("succeeded", 2)
        wrong += (told.get(_name(number)), installed[_name(number)][0]) != right
    again = sum(max(0, count - 1) for _, count in installed.values())
    faulty = sum(bool(fault_of(number)) for number in range(devices))
    return Outcome(devices, faulty, wrong, again, took_s, device_mb, broker.rss_bytes() / 1e6,
                   str(report["phase"]))  # fmt: skip


def _groups(broker: Broker, maker: Operator, devices: int) -> None:
    operator = FleetOperator.of_pki(maker.home / "pki")
    with peer(broker) as other:
        for number in range(devices):
            own = operator.desired(f"d:{_name(number)}", {}, groups=(GROUP,))
            other.publish(f"{ROOT}/d/{_name(number)}/desired", own)


def _ends(pipes: list[Any], devices: int) -> dict[str, tuple[int, int]]:
    """Until everybody has ended, or for as long as we wait."""
    limit = time.monotonic() + END_LIMIT_S
    while True:
        found: dict[str, tuple[int, int]] = {}
        ended = 0
        for pipe in pipes:
            pipe.send("how")
            said = _said(pipe, 60.0)
            found |= said["installed"]
            ended += said["ended"]
        if ended == devices or time.monotonic() > limit:
            time.sleep(3.0)  # what devices say is on its way
            return found
        time.sleep(1.0)


def _tool(broker: Broker, maker: Operator, verb: str, *words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "stoker_ota.cli.main", "campaign", verb, *words,
         "--broker", f"mqtt://127.0.0.1:{broker.port}", "--json"],
        cwd=maker.home, env=ENV, capture_output=True, text=True, check=False,
        timeout=END_LIMIT_S,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"cannot {verb} the campaign: {done.stdout[-500:]}{done.stderr[-500:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _said(pipe: Any, limit_s: float) -> dict[str, Any]:
    if not pipe.poll(limit_s):
        raise SystemExit("cannot go on: a process of devices says nothing")
    try:
        return dict(pipe.recv())
    except EOFError:
        raise SystemExit("cannot go on: a process of devices has ended") from None


def _name(number: int) -> str:
    return f"dev-{number}"


def live(numbers: list[int], address: str, folder: str, said: Connection) -> None:
    """A child's whole life: its devices, started again when their power has gone."""
    home = Path(folder)
    trust = (home / "maker/pki/trust/1.json").read_bytes()
    devices = []
    before = _rss_mb()
    for number in numbers:
        place = Home(address, home / _name(number), lambda: trust)
        devices.append(FleetDevice(_name(number), place, 1.0, fault_of(number)))
        devices[-1].start()
    limit = time.monotonic() + ONLINE_LIMIT_S
    while not all(device.online for device in devices):
        if time.monotonic() > limit:
            raise SystemExit("cannot go on: devices do not come on line")
        time.sleep(0.2)
    said.send({"mb": _rss_mb() - before})
    down: list[tuple[float, FleetDevice]] = []
    while True:
        for device in devices:
            if device.cut:
                device.lose_power()
                device.cut = False
                down.append((time.monotonic() + 2.0, device))
        for at_s, device in [item for item in down if time.monotonic() >= item[0]]:
            down.remove((at_s, device))
            device.start()
        if said.poll(0.2):
            said.recv()
            said.send(_how(devices))


def _how(devices: list[FleetDevice]) -> dict[str, Any]:
    over = [d for d in devices if d.engine.installs and not d.engine.current_job and d.online]
    found = {d.name: (d.engine.installed, d.engine.installs) for d in devices}
    return {"ended": len(over), "installed": found, "faults": Counter(d.fault for d in devices)}


def _rss_mb() -> float:
    for row in Path("/proc/self/status").read_text().splitlines():
        if row.startswith("VmRSS:"):
            return int(row.split()[1]) * 1024 / 1e6
    return 0.0
