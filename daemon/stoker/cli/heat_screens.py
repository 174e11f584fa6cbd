"""What a search for sensors found, and where the model runs, as lines for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stoker.cli.screens import clock, columns, size
from stoker.cli.terminal import Terminal


def found(findings: Sequence[Mapping[str, Any]], terminal: Terminal) -> list[str]:
    """A table, and below it what is refused and what would grant it."""
    if not findings:
        return ["Nothing: this machine shows no sensor, no meter and no clock."]
    rows: list[Sequence[str]] = [("KIND", "NAME", "VALUE", "USE")]
    refused: list[str] = []
    for item in findings:
        kind, name, value, use, fault, path, grant = (
            terminal.clean(str(item.get(key, "")))
            for key in ("kind", "name", "value", "use", "fault", "path", "grant")
        )
        rows.append((kind, name, value or fault or "?", use))
        if fault:
            verb = "write" if item.get("denied") == "write" else "read"
            refused.append(f"cannot {verb} {path}: {fault}")
            if grant:
                refused.append(f"  {grant}")
    return [*columns(rows), *([""] if refused else []), *refused]


def operating_points(table: Mapping[str, Any], terminal: Terminal) -> list[str]:
    """The points of a model, the hottest first; * marks those that nothing else beats."""
    points: Sequence[Mapping[str, Any]] = table.get("points", ())
    if not points:
        return ["No operating points: sudo stokerctl calibrate measures them."]
    model, board = (terminal.clean(str(table.get(key, ""))) for key in ("model", "board"))
    how = "by a power meter" if table.get("metered") else "estimated"
    rows: list[Sequence[str]] = [("", "PHASE", "THREADS", "CLOCK", "WATTS", "TOKENS/S", "TOKENS/J")]
    order = sorted(points, key=lambda p: (str(p["phase"]), -float(p["watts"])))
    for point in order:
        watts, rate = float(point["watts"]), float(point["tokens_per_s"])
        clocks = sorted(set(dict(point.get("caps_khz", {})).values()), reverse=True)
        rows.append(
            (
                "*" if point.get("best") else "",
                terminal.clean(str(point["phase"])),
                str(point["threads"]),
                " ".join(clock(int(khz)) for khz in clocks) or "any",
                f"{watts:.2f}",
                f"{rate:.1f}",
                f"{rate / watts:.2f}" if watts > 0 else "",
            )
        )
    done = f"{len(points)} of {table.get('size', 0)} points"
    head = f"{model} on {board}: {done}, watts {how}"
    missing = [terminal.clean(str(why)) for why in table.get("skipped", ())]
    return [head, "", *columns(rows), *([""] if missing else []), *sorted(set(missing))]


_LEVELS = {
    "partition": "CPUs of its own",
    "cpuset": "chosen CPUs, shared with others",
    "affinity": "chosen CPUs by the threads' own masks",
    "none": "any CPU",
}


def placement(facts: Mapping[str, Any], terminal: Terminal) -> list[str]:
    """Where and how the model's process runs (RealTime1)."""

    def text(key: str) -> str:
        return terminal.clean(str(facts.get(key, "")))

    level, cpus = text("level"), text("cpus")
    locked, nice = int(facts.get("locked_bytes", 0)), int(facts.get("nice", 0))
    rows = [
        ("level", f"{level}: {_LEVELS.get(level, level)}" + (f" ({cpus})" if cpus else "")),
        ("why", text("reason")),
        ("pinning", text("pinning")),
        ("scheduling", text("scheduling") + (f", nice {nice}" if nice else "")),
        ("locked", size(locked) if locked else "nothing"),
        ("kernel", f"{text('kernel')}, {text('preemption')}"),
        *(("", terminal.clean(str(note))) for note in facts.get("notes", ())),
    ]
    return [terminal.paint(f"{name:<12}", "dim") + value for name, value in rows if value]
