"""docs/inference.md shows the supervisor's table as it is."""

from __future__ import annotations

from pathlib import Path

from stoker.core.supervisor import TABLE

PAGE = Path(__file__).resolve().parents[3] / "docs" / "inference.md"
BEGIN, END = "<!-- supervisor:begin -->\n", "<!-- supervisor:end -->\n"


def diagram() -> str:
    """A mermaid state diagram: an arrow for each event that leads to another phase."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> stopped"]
    for phase, row in TABLE.items():
        arrows: dict[str, list[str]] = {}
        for event, (_handler, targets) in row.items():
            for target in sorted(targets - {phase}):
                arrows.setdefault(target, []).append(event.__name__)
        for target, events in arrows.items():
            lines.append(f"    {name(phase)} --> {name(target)}: {', '.join(events)}")
    return "\n".join([*lines, "```", ""])


def name(phase: str) -> str:
    return phase.replace("-", "_")


def test_the_page_shows_the_table() -> None:
    text = PAGE.read_text()
    assert text[text.index(BEGIN) + len(BEGIN) : text.index(END)] == diagram()


if __name__ == "__main__":
    page = PAGE.read_text()
    start, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    PAGE.write_text(page[:start] + diagram() + page[end:])
