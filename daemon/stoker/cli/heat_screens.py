"""What a search for sensors found, and where the model runs, as lines for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stoker.cli.screens import columns, size
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
    locked = int(facts.get("locked_bytes", 0))
    rows = [
        ("level", f"{level}: {_LEVELS.get(level, level)}" + (f" ({cpus})" if cpus else "")),
        ("why", text("reason")),
        ("pinning", text("pinning")),
        ("scheduling", text("scheduling")),
        ("locked", size(locked) if locked else "nothing"),
        ("kernel", f"{text('kernel')}, {text('preemption')}"),
        *(("", terminal.clean(str(note))) for note in facts.get("notes", ())),
    ]
    return [terminal.paint(f"{name:<12}", "dim") + value for name, value in rows if value]
