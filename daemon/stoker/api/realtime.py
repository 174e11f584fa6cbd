"""org.stoker.RealTime1: where and how the model's process runs. Reads, changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stoker.api import contract
from stoker.api.exports import Door, bus_text
from stoker.events.realtime import Placed, RtView
from stoker.ports.doors import AgentDoor, InferenceDoor


class RealTimeRoom:
    def __init__(self, agent: AgentDoor, inference: InferenceDoor) -> None:
        self._agent = agent
        self._inference = inference

    def door(self) -> Door:
        return Door(contract.REALTIME, {}, lambda _owner: self._now())

    def _now(self) -> dict[str, Any]:
        now = self._inference.snapshot()
        return properties(told(self._agent.realtime(now.runner_pid), now.placement))


def told(view: RtView, placed: Placed) -> RtView:
    """With what the runner says of its threads where the kernel does not let us look."""
    notes = (*view.notes, placed.note) if placed.note else view.notes
    if view.pinning != "unseen" or not placed.pinning:
        return replace(view, notes=notes)
    seen = "as the runner says: its process is another user's"
    view = replace(
        view,
        pinning=placed.pinning,
        scheduling=placed.scheduling,
        nice=placed.nice,
        notes=(seen, *(other for other in notes if "another user's" not in other)),
    )
    if view.level == "none" and placed.pinning != "free":
        return replace(view, level="affinity", cpus=placed.cpus)
    return view


def properties(view: RtView) -> dict[str, Any]:
    return {
        "Level": view.level,
        "Reason": bus_text(view.reason),
        "Cpus": bus_text(view.cpus),
        "Pinning": view.pinning,
        "Scheduling": view.scheduling,
        "Nice": view.nice,
        "LockedBytes": view.locked_bytes,
        "Kernel": bus_text(view.kernel),
        "Preemption": view.preemption,
        "Notes": [bus_text(note) for note in view.notes],
    }
