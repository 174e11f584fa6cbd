"""The heat step: what this machine's loop does, and the same loop on a simulated board.

Where there is no clock to slow down, a second stokerd simulates a Raspberry Pi 4 (a thermal
model behind a real directory tree, faster than time) and is watched.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any, Final

from rich.live import Live
from rich.table import Table

from stoker.cli import screens
from stoker.cli.terminal import Terminal
from stoker.errors import Unavailable
from stoker.tour import stage
from stoker.tour.screen import Screen
from stoker_client import Stoker

SPEED: Final = 8
_AIR_C: Final = 35  # a warm cabinet: at full clock the board would reach 100 °C
_WARM_C: Final = 74  # it has worked for a while: the wall is near
BOARD: Final = f"sim:pi4-bare,speed={SPEED},ambient={_AIR_C},warm={_WARM_C}"
_ROWS: Final = 12


class Heat:
    def __init__(self, screen: Screen, stoker: Stoker, scene: stage.Stage, watch_s: float) -> None:
        self._screen = screen
        self._stoker = stoker
        self._scene = scene
        self._watch_s = watch_s

    def show(self) -> None:
        """This machine first; then the simulated board if there is nothing to control here."""
        facts = self._stoker.thermal()
        plain = Terminal(colour=False)
        self._screen.fact("here", screens.heat({**facts, "thermal_state": facts["state"]}, plain))
        cap = int(facts["cap_khz"])
        self._screen.fact("cap", screens.clock(cap) if cap else "none")
        self._screen.fact("points", screens.point(facts, plain))
        if facts.get("policies") and facts.get("sensors"):
            return
        self._screen.say(
            f"\nSo here is a simulated Raspberry Pi 4: no heatsink, air of {_AIR_C} °C, full\n"
            f"load, {SPEED} × faster than time. The loop that holds it is the real one:"
        )
        self._simulate()

    def _simulate(self) -> None:
        with ExitStack() as stack:
            bus = stack.enter_context(stage.new_bus())
            options = ["--engine", "echo", "--board", BOARD]
            daemon = stage.Daemon("simulated", self._scene.folder, bus, options)
            stoker = stack.enter_context(Stoker(bus))
            stack.enter_context(daemon)
            daemon.wait_for_name(stoker)
            self._watch(stoker)

    def _watch(self, stoker: Stoker) -> None:
        rows: list[dict[str, Any]] = []
        started = time.monotonic()
        with Live(console=self._screen.console, auto_refresh=False) as live:
            while (age_s := time.monotonic() - started) < self._watch_s:
                rows.append({**stoker.thermal(), "age_s": age_s * SPEED})
                live.update(_table(rows[-_ROWS:]), refresh=True)
                time.sleep(self._watch_s / 30)
        if not self._screen.console.is_terminal:
            self._screen.say("")  # rich leaves a line open there
        hottest = max((row["temperature_c"] or 0.0) for row in rows)
        capped = [row for row in rows if row["cap_khz"]]
        wall = rows[-1]["wall_c"]
        self._screen.fact("hottest", f"{hottest:.1f} °C, wall {wall:.1f} °C")
        if not capped:
            raise Unavailable("cannot show the loop at work: it never set a cap")
        lowest = min(row["cap_khz"] for row in capped)
        full = max(policy["max_khz"] for policy in rows[-1]["policies"])
        self._screen.fact("cap", f"{screens.clock(lowest)} at its lowest, of {screens.clock(full)}")


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("model time", "temperature", "wall", "cap", "state"):
        table.add_column(name, justify="right")
    for row in rows:
        cap = screens.clock(row["cap_khz"]) if row["cap_khz"] else "none"
        temperature = row["temperature_c"]
        shown = "?" if temperature is None else f"{temperature:.1f} °C"
        age = screens.span(row["age_s"])
        table.add_row(age, shown, f"{row['wall_c']:.1f} °C", cap, row["state"])
    return table
