"""The life of one command: received, accepted, running, and one of five ends.

The table is the whole truth; a move that is not in it is a fault of ours. Pure: when the
record reaches the disk and what is done between two moves is the fleet desk's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from stoker.errors import InternalError
from stoker.events.fleet import FINAL, Record

MAX_ATTEMPTS: Final = 3
"""So often a command may begin: a command that takes the agent down must not do so for ever."""

TABLE: Final[Mapping[tuple[str, str], str]] = {
    ("received", "accepted"): "accepted",
    ("received", "refused"): "rejected",
    ("received", "late"): "expired",
    ("accepted", "begun"): "running",
    ("accepted", "late"): "expired",
    ("accepted", "canceled"): "canceled",
    ("running", "begun"): "running",  # after a restart in the middle
    ("running", "done"): "succeeded",
    ("running", "broken"): "failed",
    ("running", "refused"): "rejected",  # it turned out to make no sense here
    ("running", "canceled"): "canceled",
}

LANE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("update.check", "update.install", "update.rollback"), "update"),
    **dict.fromkeys(("policy.set", "model.activate"), "policy"),
}
"""Commands of one lane wait for each other; all others begin at once."""


def free(command: str, at_work: Iterable[str]) -> bool:
    """Whether it may begin beside these."""
    lane = LANE.get(command)
    return lane is None or all(LANE.get(other) != lane for other in at_work)


def step(record: Record, what: str, code: str = "", text: str = "") -> Record:
    """The record after a move. InternalError for one that the table does not have."""
    state = TABLE.get((record.state, what))
    if state is None:
        raise InternalError(f"cannot move command {record.id}: {what} while {record.state}")
    attempts = record.attempts + (what == "begun")
    if state == "running" and attempts > MAX_ATTEMPTS:
        return replace(
            record, state="failed", code="interrupted", number=record.number + 1,
            text=f"the agent ended {MAX_ATTEMPTS} times in the middle of it",
        )  # fmt: skip
    return replace(
        record, state=state, code=code, text=text, attempts=attempts, number=record.number + 1
    )


def diagram() -> str:
    """The table for docs/fleet.md."""
    lines = ["stateDiagram-v2", "    [*] --> received"]
    moves: dict[tuple[str, str], list[str]] = {}
    for (state, what), to in TABLE.items():
        moves.setdefault((state, to), []).append(what)
    lines += [f"    {a} --> {b}: {', '.join(words)}" for (a, b), words in moves.items()]
    lines += [f"    {state} --> [*]" for state in FINAL]
    return "\n".join(lines)
