"""What ``stokerctl top`` shows, from two looks at the agent. Pure, but for the names of users."""

from __future__ import annotations

import pwd
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from stoker.cli import screens
from stoker.cli.terminal import Terminal, clean
from stoker_client.history import Event

BAR: Final = 24
_AGAINST_WALL_K: Final = 8.0
_OTHERS: Final = 0xFFFFFFFF  # the agent says nothing of who they are
_PARTS: Final = {"preflight", "fetching", "applying", "verifying"}


@dataclass(frozen=True, slots=True)
class Look:
    """The agent at one moment, and what was seen before."""

    at: float
    status: Mapping[str, Any]
    thermal: Mapping[str, Any]
    queue: Sequence[tuple[int, str, int, int]] = ()
    update: Mapping[str, Any] = field(default_factory=dict)
    events: Sequence[Event] = ()
    before: Look | None = None

    @property
    def tokens_s(self) -> float | None:
        """Tokens a second since the look before; None on the first, and when the runner is new."""
        if self.before is None or self.at <= self.before.at:
            return None
        key = "sampled_tokens"
        made = int(self.status.get(key, 0)) - int(self.before.status.get(key, 0))
        return made / (self.at - self.before.at) if made >= 0 else None

    def plain(self) -> dict[str, object]:
        """For programs."""
        return {
            "at": self.at,
            "tokens_s": self.tokens_s,
            "status": dict(self.status),
            "thermal": dict(self.thermal),
            "queue": [
                {"uid": uid, "class": word, "running": running, "waiting": waiting}
                for uid, word, running, waiting in self.queue
            ],
            "update": dict(self.update),
            "events": [{"at": e.at, "kind": e.kind, "text": e.text} for e in self.events],
        }


def screen(look: Look, terminal: Terminal) -> Group:
    """One screen of at most 80 columns."""
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim")
    rows.add_column()
    for name, value in _rows(look, terminal):
        rows.add_row(name, value)
    parts: list[Any] = [rows, Text()]
    parts.append(_queue(look.queue))
    if look.events:
        parts += [Text(), _events(look.events)]
    return Group(*parts)


def _rows(look: Look, terminal: Terminal) -> list[tuple[str, Text]]:
    status, heat = look.status, look.thermal
    speed = look.tokens_s
    state = str(status.get("state", "?"))
    rows = [
        ("model", _text(f"{status.get('model') or 'none'}  {state}")),
        ("speed", Text("…" if speed is None else f"{speed:.1f} tokens/s")),
        (
            "jobs",
            Text(f"{status.get('active_jobs', 0)} running, {status.get('queue_depth', 0)} waiting"),
        ),
        ("heat", _heat(heat)),
        ("headroom", _bar(float(heat.get("headroom", 1.0)), "green")),
        ("cap", Text(_cap(heat))),
        ("threads", _text(f"{status.get('threads', 0)}  {status.get('cpus') or 'any CPU'}")),
        ("memory", Text(_memory(status, terminal))),
        ("up", Text(screens.span(float(status.get("uptime_s", 0.0))))),
    ]
    if look.update.get("State", "idle") != "idle" or look.update.get("Phase"):
        rows.append(("update", _update(look.update)))
    return rows


def _heat(facts: Mapping[str, Any]) -> Text:
    degrees, wall = facts.get("temperature_c"), float(facts.get("wall_c", 0.0))
    state = clean(str(facts.get("state", "")))
    if not isinstance(degrees, float):
        return Text(f"no sensor ({state})")
    near = wall - degrees
    colour = "green" if near > _AGAINST_WALL_K else "yellow" if near > 0 else "red"
    part = (degrees - 20.0) / (wall - 20.0) if wall > 20.0 else 0.0
    return Text.assemble(_bar(part, colour, ""), f"  {degrees:.1f} of {wall:.1f} °C  {state}")


def _cap(facts: Mapping[str, Any]) -> str:
    caps = facts.get("caps_khz") or {}
    if not caps:
        return "none" if facts.get("policies") else "no clock to cap here"
    return ", ".join(
        f"{clean(str(name))} {screens.clock(int(khz))}" for name, khz in sorted(caps.items())
    )


def _memory(status: Mapping[str, Any], terminal: Terminal) -> str:
    runner = int(status.get("runner_memory_bytes", 0))
    level = str(status.get("memory_level", "calm"))
    words = [f"runner {screens.size(runner)}" if runner else "no runner", level]
    return ", ".join([*words, *screens.memory(status, terminal)[:1]])


def _update(facts: Mapping[str, Any]) -> Text:
    phase = clean(str(facts.get("Phase") or facts.get("State", "")))
    done, total = int(facts.get("Done", 0)), int(facts.get("Total", 0))
    what = f"{clean(str(facts.get('Deployment', '')))} {phase}".strip()
    if phase in _PARTS and total:
        return Text.assemble(_bar(done / total, "cyan"), f"  {what}")
    return Text(what)


def _queue(queue: Sequence[tuple[int, str, int, int]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", show_edge=False)
    for name in ("USER", "CLASS"):
        table.add_column(name)
    for name in ("RUNNING", "WAITING"):
        table.add_column(name, justify="right")
    for uid, word, running, waiting in queue[:8]:
        table.add_row(_user(uid), word, str(running), str(waiting))
    if not queue:
        table.add_row(Text("nobody asks", style="dim"))
    return table


def _events(events: Sequence[Event]) -> Table:
    table = Table.grid(padding=(0, 2))
    for event in events[::-1]:
        when = time.strftime("%H:%M:%S", time.localtime(event.at))
        table.add_row(Text(when, style="dim"), event.kind, Text(clean(event.text)))
    return table


def _bar(part: float, colour: str, after: str | None = None) -> Text:
    """Filled to ``part`` (0..1), followed by it in per cent unless something else is told."""
    part = min(max(part, 0.0), 1.0)
    full = round(BAR * part)
    tail = f"  {part:.0%}" if after is None else after
    return Text.assemble(("█" * full, colour), ("░" * (BAR - full), "dim"), tail)


def _user(uid: int) -> str:
    if uid == _OTHERS:
        return "others"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _text(words: str) -> Text:
    return Text(clean(words))
