"""What a search for sensors found, as lines for people. Pure: dictionaries in, lines out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stoker.cli.screens import columns
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
