"""A simulated board as a real directory tree, so that the real drivers and stokerd read it.

The tree has thermal zones, cpufreq policies and the device tree's names; the plant reads
scaling_max_freq and writes temperatures. ``BoardThread`` keeps it going in real or faster time.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from stoker.core.simulation import Simulation
from stoker.drivers import token_model
from stoker.drivers.plants import PLANTS, Cluster, Plant, PlantSpec, warmer
from stoker.errors import ConfigInvalid

TICK_S = 0.05
_LONGEST_STEP_S = 0.02


class SimulatedBoard:
    """Owns the tree below ``root`` and the plant behind it."""

    def __init__(self, plant: Plant, root: Path) -> None:
        self.plant = plant
        self.root = root
        spec = plant.spec
        self._caps = {c.policy: c.opps[-1][0] * 1000 for c in spec.clusters}
        self._published: dict[str, float] = {}
        _put(root / "firmware/devicetree/base/compatible", "\0".join(spec.compatible) + "\0")
        for number, zone in enumerate(spec.zones):
            self._create_zone(number, zone)
        for cluster in spec.clusters:
            self._create_policy(cluster)
        self.publish()

    def zone_dir(self, zone: str) -> Path:
        return (
            self.root / "class/thermal" / f"thermal_zone{list(self.plant.spec.zones).index(zone)}"
        )

    def policy_dir(self, policy: str) -> Path:
        return self.root / "devices/system/cpu/cpufreq" / policy

    def advance(self, seconds: float, load: float) -> None:
        """Simulate, then publish: caps are read once, as the tick is short."""
        caps = self._read_caps()
        left_s = seconds
        while left_s > 1e-9:
            step_s = min(left_s, _LONGEST_STEP_S)
            self.plant.advance(step_s, caps, load)
            left_s -= step_s
        self.publish()

    def publish(self) -> None:
        """Write what the kernel would show. A zone or policy that a test removed stays away."""
        for zone in self.plant.spec.zones:
            directory = self.zone_dir(zone)
            if directory.is_dir():
                _show(directory / "temp", self.plant.sensed_mc(zone))
        for policy, mhz in self.plant.mhz.items():
            directory = self.policy_dir(policy)
            if directory.is_dir() and self._published.get(policy) != mhz:
                self._published[policy] = mhz
                _show(directory / "scaling_cur_freq", int(mhz * 1000))

    def _create_zone(self, number: int, zone: str) -> None:
        directory = self.root / "class/thermal" / f"thermal_zone{number}"
        _put(directory / "type", f"{zone}\n")
        _put(directory / "mode", "enabled\n")
        for index, (kind, at_c) in enumerate(self.plant.spec.trips):
            _put(directory / f"trip_point_{index}_type", f"{kind}\n")
            _put(directory / f"trip_point_{index}_temp", f"{int(at_c * 1000)}\n")

    def _create_policy(self, cluster: Cluster) -> None:
        directory = self.policy_dir(cluster.policy)
        steps = [int(mhz * 1000) for mhz, _ in cluster.opps]
        cpus = " ".join(str(cpu) for cpu in cluster.cpus)
        for name, text in (
            ("related_cpus", cpus),
            ("affected_cpus", cpus),
            ("cpuinfo_min_freq", str(steps[0])),
            ("cpuinfo_max_freq", str(steps[-1])),
            ("scaling_available_frequencies", " ".join(map(str, steps))),
            ("scaling_min_freq", str(steps[0])),
            ("scaling_max_freq", str(steps[-1])),
            ("scaling_governor", "performance"),
        ):
            _put(directory / name, f"{text}\n")

    def _read_caps(self) -> dict[str, float]:
        for policy in self._caps:
            # Missing or half written: the last value stands, as it does in the kernel.
            with contextlib.suppress(OSError, ValueError):
                self._caps[policy] = int((self.policy_dir(policy) / "scaling_max_freq").read_text())
        return dict(self._caps)


def _show(path: Path, value: int) -> None:
    """In place and of one width: readers see the old or the new number, and no rename is
    paid ten times a second."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.pwrite(descriptor, f"{value}\n".ljust(12, "\n").encode(), 0)
    finally:
        os.close(descriptor)


def _put(path: Path, text: str) -> None:
    """Atomic: no reader ever sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text)
    temporary.replace(path)


def plant_of(name: str) -> PlantSpec:
    """By its name or a beginning that only one has. Errors: ConfigInvalid with the names."""
    fitting = [name] if name in PLANTS else [n for n in PLANTS if n.startswith(name)]
    if len(fitting) == 1:
        return PLANTS[fitting[0]]
    raise ConfigInvalid(
        f"cannot simulate board {name!r}: {'several are' if fitting else 'none is'} called so",
        hint=f"plants: {', '.join(PLANTS)}",
        details={"path": "thermal.board"},
    )


def spec_of(name: str, ambient_c: float | None) -> PlantSpec:
    spec = plant_of(name)
    return spec if ambient_c is None else warmer(spec, ambient_c)


def run(
    board: SimulatedBoard,
    *,
    speed: float,
    load: Callable[[], float],
    stop: threading.Event,
    duration_s: float = 0.0,
) -> None:
    """Real time times ``speed``; a late wake-up is caught up. ``DIR/load`` (0..1), when it
    exists, replaces ``load``. Until ``stop``, or for ``duration_s`` of real time."""
    began = last = time.monotonic()
    while not stop.wait(TICK_S):
        now = time.monotonic()
        part = load()
        with contextlib.suppress(OSError, ValueError):
            part = float((board.root / "load").read_text())
        board.advance((now - last) * speed, min(1.0, max(0.0, part)))
        last = now
        if duration_s and now - began >= duration_s:
            return


class BoardThread:
    """The board of ``thermal.board = "sim:…"``: its tree is made at once, runs from ``start``
    and is gone after ``stop``. ``agent_load`` is the agent's own work, 0..1.
    """

    def __init__(self, wanted: Simulation, root: Path, agent_load: Callable[[], float]) -> None:
        self._wanted = wanted
        self._root = root
        self._agent_load = agent_load
        plant = Plant(spec_of(wanted.plant, wanted.ambient_c))
        if wanted.warm_c is not None:
            plant.warm_to(wanted.warm_c)
        shutil.rmtree(root, ignore_errors=True)  # of a stokerd that was killed: that board is off
        self._board = SimulatedBoard(plant, root)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def speed(self, phase: str, part: float) -> tuple[float, float]:
        """(tokens a second, busy CPUs) of this part of its CPUs at the clock it has now."""
        plant = self._board.plant
        cpus = sum(len(cluster.cpus) for cluster in plant.spec.clusters)
        threads = max(1, round(part * cpus))
        wanted: token_model.Phase = "decode" if phase == "decode" else "prefill"
        return token_model.tokens_per_s(plant.spec, wanted, threads, plant.mhz), float(threads)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="board", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Safe to call twice, and before ``start``."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5.0)
            self._thread = None
        shutil.rmtree(self._root, ignore_errors=True)

    def _run(self) -> None:
        fixed = self._wanted.load
        load = self._agent_load if fixed is None else lambda: fixed
        run(self._board, speed=self._wanted.speed, load=load, stop=self._stop)
