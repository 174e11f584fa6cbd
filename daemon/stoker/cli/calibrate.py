"""The verb ``calibrate``: let stokerd measure operating points, with a bar; or show them.

The measuring is stokerd's: Ctrl-C tells it to stop, and it leaves the clocks to its heat loop.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any, Final

from stoker.cli import heat_screens
from stoker.cli.bars import Bar
from stoker.cli.terminal import Terminal
from stoker_client import Stoker, StokerClientError

POLL_S: Final = 0.2
_UNDER_WAY: Final = ("running", "waiting")


def run(args: Namespace, terminal: Terminal) -> int:
    with Stoker(args.bus) as stoker:
        if args.action == "cancel":
            stoker.cancel_calibration()
            if terminal.as_json:
                terminal.json({"cancelled": True})
            else:
                terminal.line("No calibration runs; the clocks are the heat loop's.")
            return 0
        if args.action == "run":
            stoker.calibrate(fresh=args.fresh)
            try:
                _follow(stoker, terminal)
            except KeyboardInterrupt:
                stoker.cancel_calibration()
                terminal.note(
                    "stopped; what was measured is kept, and the clocks are the heat loop's again"
                )
                raise
        _show(stoker.operating_points(), terminal)
    return 0


def _follow(stoker: Stoker, terminal: Terminal) -> None:
    """Until it has ended; what failed is raised."""
    bar = Bar(shown=terminal.err_is_tty and not terminal.as_json)
    said = ""
    try:
        while True:
            state, progress, reason = stoker.calibration()
            if state not in _UNDER_WAY:
                break
            bar.update("measuring" if state == "running" else "waiting", progress)
            if state == "waiting" and reason != said and not terminal.as_json:
                said = reason
                terminal.note(f"it waits: {reason}")
            time.sleep(POLL_S)
    finally:
        bar.close()
    if state == "failed":
        raise StokerClientError("engine-failed", reason or "cannot calibrate: it failed")
    if state == "cancelled":
        raise StokerClientError("cancelled", "cannot calibrate: it was stopped")
    if reason and not terminal.as_json:
        terminal.note(reason)


def _show(table: Mapping[str, Any], terminal: Terminal) -> None:
    points: Sequence[Mapping[str, Any]] = table.get("points", ())
    if terminal.as_json:
        terminal.json({**table, "points": [dict(point) for point in points]})
        return
    lines = heat_screens.operating_points(table, terminal)
    terminal.write("".join(line + "\n" for line in lines))
