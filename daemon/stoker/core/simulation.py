"""Which simulated board ``thermal.board = "sim:PLANT,key=value,…"`` asks for. Pure.

The plants themselves are drivers/plants.py; whether one exists is decided there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from stoker.errors import ConfigInvalid

PREFIX: Final = "sim:"
_RANGES: Final = {
    "speed": (0.1, 60.0),
    "load": (0.0, 1.0),
    "ambient": (-20.0, 60.0),
    "warm": (0.0, 110.0),
}


@dataclass(frozen=True, slots=True)
class Simulation:
    """``speed``: model seconds per second. ``load`` of every CPU, None = the agent's own work.
    ``ambient_c`` None = the plant's; ``warm_c``: the junction at the start, None = cold.
    """

    plant: str
    speed: float = 1.0
    load: float | None = 1.0
    ambient_c: float | None = None
    warm_c: float | None = None


def parse(board: str) -> Simulation | None:
    """None: that is no simulated board. Errors: ConfigInvalid that names thermal.board."""
    if not board.startswith(PREFIX):
        return None
    plant, *settings = board.removeprefix(PREFIX).split(",")
    values: dict[str, float | None] = {}
    for setting in settings:
        key, _, text = setting.partition("=")
        if key in values:
            raise _refused(board, f"{key} is set twice")
        values[key] = None if setting == "load=agent" else _number(board, key, text)
    if not plant:
        raise _refused(board, "it names no plant")
    speed, load = values.get("speed"), values.get("load", 1.0)
    return Simulation(
        plant, 1.0 if speed is None else speed, load, values.get("ambient"), values.get("warm")
    )


def _number(board: str, key: str, text: str) -> float:
    if key not in _RANGES:
        raise _refused(board, f"{key!r} is no setting of a simulated board")
    low, high = _RANGES[key]
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise _refused(board, f"{key} must be {low:g}..{high:g}, not {text!r}")
    return value


def _refused(board: str, reason: str) -> ConfigInvalid:
    return ConfigInvalid(
        f"cannot simulate thermal.board {board!r}: {reason}",
        hint="sim:PLANT, then any of speed=8 load=0.5 load=agent ambient=35 warm=74",
        details={"path": "thermal.board"},
    )
