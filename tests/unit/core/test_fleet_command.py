"""The life of a command: the table's moves, its limit on attempts, the diagram in the docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.core import fleet_command
from stoker.errors import InternalError
from stoker.events.fleet import FINAL, Record

ROOT = Path(__file__).resolve().parents[3]


def test_a_good_command_goes_through_three_states() -> None:
    record = Record("1", "runtime.restart")
    seen = []
    for what in ("accepted", "begun", "done"):
        record = fleet_command.step(record, what)
        seen.append(record.state)
    assert seen == ["accepted", "running", "succeeded"]
    assert record.number == 3
    assert record.attempts == 1


@pytest.mark.parametrize("state", FINAL)
def test_nothing_leaves_an_end(state: str) -> None:
    words = {what for _, what in fleet_command.TABLE}
    for what in words:
        with pytest.raises(InternalError):
            fleet_command.step(Record("1", "x", state=state), what)


def test_a_command_that_takes_the_agent_down_is_given_up() -> None:
    record = fleet_command.step(Record("1", "x"), "accepted")
    for _ in range(fleet_command.MAX_ATTEMPTS):
        record = fleet_command.step(record, "begun")
        assert record.state == "running"
    record = fleet_command.step(record, "begun")
    assert (record.state, record.code) == ("failed", "interrupted")


def test_the_documented_diagram_is_the_table() -> None:
    text = (ROOT / "docs/fleet.md").read_text()
    shown = text.split("<!-- commands:begin -->\n```mermaid\n")[1].split("\n```")[0]
    assert shown == fleet_command.diagram()
