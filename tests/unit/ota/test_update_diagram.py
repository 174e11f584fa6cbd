"""docs/ota.md shows the machine's table as it is. ``python -m tests.unit.ota.test_update_diagram``
writes it anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

from stoker_ota.core.machine import TABLE, step
from stoker_ota.values.deployment import Journal, Offer, Phase
from stoker_ota.values.moves import Event, What

PAGE = Path(__file__).resolve().parents[3] / "docs" / "ota.md"
BEGIN, END = "<!-- updates:begin -->\n", "<!-- updates:end -->\n"


def journals(phase: Phase) -> Iterator[Journal]:
    """Every kind of journal that a move looks at."""
    for full, confirm, attempts, failures, short, whole, healthy in product(
        (True, False), (True, False), (0, 2), (0, 1), (0, 4), (True, False), (True, False)
    ):
        offer = Offer("chat", 1, "a" * 64, allow_full=full, confirm=confirm)
        yield Journal(phase, offer, 1, attempts=attempts, delta_failures=failures, whole=whole,
                      memory_failures=short, healthy=healthy)  # fmt: skip


def targets(phase: Phase, what: What) -> set[Phase]:
    newer = Offer("chat", 2, "b" * 64)
    events = [Event(what, newer, generation=number) for number in (0, 1)]
    found = {step(j, event)[0].phase for j in journals(phase) for event in events}
    return found - {phase}


def diagram() -> str:
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> idle"]
    for phase in Phase:
        arrows: dict[Phase, list[str]] = {}
        for at, what in TABLE:
            if at is phase:
                for target in sorted(targets(phase, what), key=lambda item: item.value):
                    arrows.setdefault(target, []).append(what.value)
        for target, events in arrows.items():
            lines.append(f"    {name(phase)} --> {name(target)}: {', '.join(events)}")
    return "\n".join([*lines, "```", ""])


def name(phase: Phase) -> str:
    return phase.value.replace("-", "_")


def test_the_page_shows_the_table() -> None:
    text = PAGE.read_text()
    assert text[text.index(BEGIN) + len(BEGIN) : text.index(END)] == diagram()


def test_every_phase_can_be_left_and_reached() -> None:
    left = {phase for phase, what in TABLE if targets(phase, what)}
    assert left == set(Phase)
    assert {t for phase, what in TABLE for t in targets(phase, what)} == set(Phase)


if __name__ == "__main__":
    page = PAGE.read_text()
    start, stop = page.index(BEGIN) + len(BEGIN), page.index(END)
    PAGE.write_text(page[:start] + diagram() + page[stop:])
