"""The simulated board of ``stoker.drivers.simulated_board`` as a process of its own.

    python -m bench.simulated_board pi4-bare --root DIR [--speed 1] [--load 1] [--duration S]

Point ``thermal.sysfs_root`` at DIR. ``stokerd --board sim:pi4-bare`` needs no second process.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from stoker.drivers.plants import PLANTS, Plant
from stoker.drivers.simulated_board import SimulatedBoard, run, spec_of


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
    load, end = options.load, threading.Event()
    with contextlib.suppress(KeyboardInterrupt):
        run(board, speed=options.speed, load=lambda: load, stop=end, duration_s=options.duration)
    return 0


if __name__ == "__main__":
    sys.exit(main())
