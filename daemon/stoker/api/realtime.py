"""org.stoker.RealTime1: where and how the model's process runs. Reads, changes nothing."""

from __future__ import annotations

from typing import Any

from stoker.api import contract
from stoker.api.exports import Door, bus_text
from stoker.events.realtime import RtView
from stoker.ports.doors import AgentDoor, InferenceDoor


class RealTimeRoom:
    def __init__(self, agent: AgentDoor, inference: InferenceDoor) -> None:
        self._agent = agent
        self._inference = inference

    def door(self) -> Door:
        return Door(contract.REALTIME, {}, lambda _owner: self._now())

    def _now(self) -> dict[str, Any]:
        return properties(self._agent.realtime(self._inference.snapshot().runner_pid))


def properties(view: RtView) -> dict[str, Any]:
    return {
        "Level": view.level,
        "Reason": bus_text(view.reason),
        "Cpus": bus_text(view.cpus),
        "Pinning": view.pinning,
        "Scheduling": view.scheduling,
        "LockedBytes": view.locked_bytes,
        "Kernel": bus_text(view.kernel),
        "Preemption": view.preemption,
        "Notes": [bus_text(note) for note in view.notes],
    }
