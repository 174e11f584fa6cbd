"""docs/inference.md shows the tables of the supervisor and of a change of model as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.core import supervisor, swap

PAGE = Path(__file__).resolve().parents[3] / "docs" / "inference.md"


def of_supervisor() -> str:
    """A mermaid state diagram: an arrow for each event that leads to another phase."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> stopped"]
    for phase, row in supervisor.TABLE.items():
        arrows: dict[str, list[str]] = {}
        for event, (_handler, targets) in row.items():
            for target in sorted(str(target) for target in targets - {phase}):
                arrows.setdefault(target, []).append(event.__name__)
        for target, events in arrows.items():
            lines.append(f"    {name(phase)} --> {name(target)}: {', '.join(events)}")
    return "\n".join([*lines, "```", ""])


def name(phase: str) -> str:
    return phase.replace("-", "_")


def of_swap() -> str:
    """The same for looks: what leads where is in the phases' names."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> idle"]
    lines += ["    idle --> staging: memory holds both", "    idle --> draining: memory holds one"]
    for begin, (_handler, ends) in swap.TABLE.items():
        lines += [f"    {name(begin)} --> {name(end)}" for end in sorted(ends)]
    return "\n".join([*lines, "```", ""])


DIAGRAMS = {"supervisor": of_supervisor, "swap": of_swap}


def marks(which: str) -> tuple[str, str]:
    return f"<!-- {which}:begin -->\n", f"<!-- {which}:end -->\n"


@pytest.mark.parametrize("which", DIAGRAMS)
def test_the_page_shows_the_table(which: str) -> None:
    text, (begin, end) = PAGE.read_text(), marks(which)
    assert text[text.index(begin) + len(begin) : text.index(end)] == DIAGRAMS[which]()


if __name__ == "__main__":
    for which, draw in DIAGRAMS.items():
        page, (begin, end) = PAGE.read_text(), marks(which)
        start, stop = page.index(begin) + len(begin), page.index(end)
        PAGE.write_text(page[:start] + draw() + page[stop:])
