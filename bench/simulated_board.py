"""A simulated board as a real directory tree, so that the real drivers and stokerd read it.

    python -m bench.simulated_board pi4-bare --root DIR [--speed 1] [--load 1] [--duration S]

Point ``thermal.sysfs_root`` at DIR. The tree has thermal zones, cpufreq policies and the
device tree's names; the plant reads scaling_max_freq and writes temperatures.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.plants import PLANTS, Cluster, Plant, PlantSpec, warmer

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


def spec_of(name: str, ambient_c: float | None) -> PlantSpec:
    return PLANTS[name] if ambient_c is None else warmer(PLANTS[name], ambient_c)


def run(board: SimulatedBoard, *, speed: float, load: float, duration_s: float) -> None:
    """Real time times ``speed``; a late wake-up is caught up. ``DIR/load`` (0..1), when it
    exists, replaces ``load`` while we run. 0 = until a signal."""
    began = last = time.monotonic()
    while not duration_s or last - began < duration_s:
        time.sleep(TICK_S)
        now = time.monotonic()
        with contextlib.suppress(OSError, ValueError):
            load = min(1.0, max(0.0, float((board.root / "load").read_text())))
        board.advance((now - last) * speed, load)
        last = now


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.simulated_board",
        description="Simulate a board's heat as a sysfs tree that stokerd can read.",
        epilog="Set thermal.sysfs_root to the same directory.",
    )
    parser.add_argument("plant", choices=sorted(PLANTS), help="which board")
    parser.add_argument("--root", type=Path, required=True, help="directory of the tree")
    parser.add_argument("--speed", type=float, default=1.0, help="simulated seconds per second")
    parser.add_argument("--load", type=float, default=1.0, help="load of every CPU, 0..1")
    parser.add_argument("--duration", type=float, default=0.0, help="seconds; 0 = until a signal")
    parser.add_argument("--ambient", type=float, default=None, help="air in °C")
    parser.add_argument("--warm", type=float, default=0.0, help="start at this junction in °C")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sensor's noise")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    plant = Plant(spec_of(options.plant, options.ambient), options.seed)
    if options.warm:
        plant.warm_to(options.warm)
    board = SimulatedBoard(plant, options.root)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(f"{options.plant} at {options.root} (pid {os.getpid()})", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        run(board, speed=options.speed, load=options.load, duration_s=options.duration)
    return 0


if __name__ == "__main__":
    sys.exit(main())
