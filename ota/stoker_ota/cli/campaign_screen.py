"""How a campaign is shown: a live table on a terminal, lines on a pipe, JSON for programs.

rich is imported only for a terminal. It decides nothing.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, Protocol

from stoker_ota.cli.console import Console, clean
from stoker_ota.core import campaign
from stoker_ota.core.campaign_count import LOST, OUTSIDE
from stoker_ota.services.campaign_run import CampaignRun

ROWS: Final = 15
_NOTEWORTHY: Final = ("failed", "rejected", "expired", "canceled", LOST)


def facts(run: CampaignRun) -> dict[str, object]:
    """For programs."""
    plan, state, counts = run.plan, run.state, run.counts()
    return {
        "campaign": plan.id, "deployment": plan.deployment, "version": plan.version,
        "groups": list(plan.groups), "phase": state.phase, "step": state.at + 1,
        "steps": list(plan.steps), "percent": campaign.percent(plan, state),
        "members": counts.members, "reached": counts.reached,
        "succeeded": counts.succeeded, "failed": counts.failed,
    }  # fmt: skip


def devices(run: CampaignRun) -> dict[str, dict[str, object]]:
    return {
        name: {
            "state": standing, "code": seen.code, "detail": seen.detail,
            "online": not seen.away_s, "groups": list(seen.groups),
        }
        for name, (standing, seen) in run.standings().items()
    }  # fmt: skip


def headline(run: CampaignRun) -> str:
    plan, state, counts = run.plan, run.state, run.counts()
    return (
        f"{plan.id}: {plan.deployment} {plan.version}, {state.phase}, "
        f"step {state.at + 1} of {len(plan.steps)} ({campaign.percent(plan, state):g} %): "
        f"{counts.succeeded} of {counts.reached} succeeded, {counts.failed} failed, "
        f"{counts.members} in the groups"
    )


class Screen(Protocol):
    def show(self, run: CampaignRun, said: str) -> None:
        """``said``: what has happened."""


class Lines:
    """One line for each change."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._told: dict[str, str] = {}
        self._head: object = None

    def show(self, run: CampaignRun, said: str) -> None:
        if said:
            self._say({"campaign": run.plan.id, "said": said}, f"{run.plan.id}: {said}")
        for name, (standing, seen) in run.standings().items():
            if self._told.get(name) == standing or standing == OUTSIDE:
                continue
            self._told[name] = standing
            line = f"{name:<24}{standing:<12}{seen.code} {seen.detail}".rstrip()
            self._say({"device": name, "state": standing, "code": seen.code}, line)
        head = facts(run)
        if head != self._head:
            self._head = head
            self._say(head, headline(run))

    def _say(self, record: object, line: str) -> None:
        if self._console.as_json:
            self._console.json(record)
        else:
            self._console.line(line)


class Table:
    """Redrawn in place: a bar for the step, and the devices one should look at."""

    def __init__(self, live: Any) -> None:
        self._live = live
        self._story: list[str] = []

    def show(self, run: CampaignRun, said: str) -> None:
        if said:
            self._story = [*self._story, said][-5:]
        self._live.update(_drawn(run, self._story), refresh=True)


@contextlib.contextmanager
def opened(console: Console) -> Iterator[Screen]:
    if console.as_json or not sys.stdout.isatty():
        yield Lines(console)
        return
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        yield Table(live)


def _drawn(run: CampaignRun, story: list[str]) -> Any:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table as Grid
    from rich.text import Text

    plan, state, counts = run.plan, run.state, run.counts()
    steps = Grid(box=None, pad_edge=False)
    for name in ("step", "", "devices", "succeeded", "failed"):
        steps.add_column(name, justify="left" if not name else "right", min_width=8)
    for index, percent in enumerate(plan.steps):
        now = index == state.at
        share = counts.succeeded / max(1, counts.reached) if now else float(index < state.at)
        numbers = (counts.reached, counts.succeeded, counts.failed) if now else ("", "", "")
        bar = ProgressBar(total=1.0, completed=share, width=30)
        steps.add_row(f"{percent:g} %", bar, *map(str, numbers))
    rows = Grid("device", "state", "code", "", box=None, pad_edge=False)
    standings = run.standings()
    shown = [item for item in standings.items() if item[1][0] in (*_NOTEWORTHY, "running")]
    for name, (standing, seen) in shown[:ROWS]:
        style = "red" if standing in _NOTEWORTHY else ""
        rows.add_row(*(Text(clean(t)[:60]) for t in (name, standing, seen.code, seen.detail)),
                     style=style)  # fmt: skip
    tally = Counter(standing for standing, _ in standings.values())
    told = ", ".join(f"{count} {name}" for name, count in sorted(tally.items()))
    return Group(Text(headline(run)), steps, Text(told), rows, *map(Text, story))
