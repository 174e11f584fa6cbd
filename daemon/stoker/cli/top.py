"""The verb ``top``: the agent live in a terminal, once a second until q or Ctrl-C.

Two looks make a rate. Drawing is rich's; what stands where is ``top_screen``, which is pure.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from stoker.cli.terminal import Terminal
from stoker.cli.top_screen import Look, screen
from stoker_client import Stoker, StokerClientError

EVENTS_S = 3600.0


def run(args: Namespace, terminal: Terminal) -> int:
    """With --json one line a look; without a terminal one plain screen a look."""
    from rich.console import Console
    from rich.live import Live

    with Stoker(args.bus) as stoker:
        looks = _looks(stoker, args)
        if terminal.as_json:
            for look in looks:
                terminal.json(look.plain())
            return 0
        console = Console(file=terminal.out, no_color=not terminal.colour, highlight=False)
        if not terminal.out_is_tty:
            for look in looks:
                console.print(screen(look, terminal))
            return 0
        with _keys(), Live(console=console, screen=True, auto_refresh=False) as live:
            for look in looks:
                live.update(screen(look, terminal), refresh=True)
    return 0


def _looks(stoker: Stoker, args: Namespace) -> Iterator[Look]:
    before: Look | None = None
    count = 0
    while args.count == 0 or count < args.count:
        before = look_at(stoker, before)
        yield before
        count += 1
        if count != args.count and _quit_within(args.seconds):
            return


def look_at(stoker: Stoker, before: Look | None) -> Look:
    """Everything at one moment. What an agent does not have (history switched off) is left out."""
    now = time.time()
    events: list[Any] = []
    with contextlib.suppress(StokerClientError):
        events = stoker.history(now - EVENTS_S, now + 60.0, EVENTS_S).events
    updates = stoker.updates
    facts = updates.facts()
    job = str(facts.get("Job", "/"))
    progress: dict[str, Any] = {}
    if job != "/":
        with contextlib.suppress(StokerClientError):  # it ended just now
            progress = updates.job(job)
    return Look(
        at=now,
        status=stoker.status(),
        thermal=stoker.thermal(),
        queue=stoker.queue(),
        update={**facts, **progress},
        events=events[-6:],
        before=before,
    )


@contextlib.contextmanager
def _keys() -> Iterator[None]:
    """One key at a time, unechoed, while it is on; the terminal is left as it was."""
    import termios
    import tty

    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _quit_within(seconds: float) -> bool:
    """Whether q was typed; the wait between two looks."""
    if not sys.stdin.isatty():
        time.sleep(seconds)
        return False
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if select.select([sys.stdin], [], [], left)[0] and os.read(sys.stdin.fileno(), 64) in (
            b"q", b"Q", b"",
        ):  # fmt: skip
            return True
    return False
