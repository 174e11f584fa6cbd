"""What the device reports by itself: its state when that changes, telemetry at its times.

The state is a retained document and small; telemetry that nobody could hear waits in the
outbox. No prompt, no answer and no name of a user is in either. Fleet thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import stoker
from stoker.core import fleet_words
from stoker.events.fleet import TELEMETRY, FleetSnapshot, Record
from stoker.ports.doors import InferenceDoor, ThermalDoor
from stoker.ports.fleet import Letter
from stoker.ports.updates import UpdateDoor

LEAST_S: Final = 1.0  # between two states
REFRESH_S: Final = 900.0  # told anew although nothing changed
RESULTS: Final = 8


@dataclass(frozen=True, slots=True)
class Sources:
    inference: InferenceDoor
    thermal: ThermalDoor
    updates: UpdateDoor
    recent: Callable[[int], Sequence[Record]]
    labels: Callable[[], Mapping[str, str]]
    fleet: Callable[[FleetSnapshot], FleetSnapshot]  # fills in groups, versions, staleness
    paused: Callable[[], bool]
    clock_word: Callable[[], str]
    meter: Callable[[], Mapping[str, object]]
    commands: tuple[str, ...]
    board: str
    device: str
    storage: Callable[[], str] = field(default=lambda: "")  # why nothing can be kept


@dataclass(frozen=True, slots=True)
class Ways:
    """How a report leaves."""

    state: Callable[[bytes], None]
    whisper: Callable[[bytes], bool]
    post: Callable[[Sequence[Letter]], None]
    telemetry_topic: str


class Reporter:
    def __init__(
        self,
        sources: Sources,
        ways: Ways,
        *,
        telemetry_s: float,
        monotonic_s: Callable[[], float],
        wall_s: Callable[[], float],
    ) -> None:
        """``telemetry_s`` 0 = none."""
        self._from, self._ways = sources, ways
        self._telemetry_s, self._now_s, self._wall_s = telemetry_s, monotonic_s, wall_s
        self._told: bytes = b""
        self._told_s = -REFRESH_S
        self._looked_s = -LEAST_S
        self._next_s = monotonic_s() + telemetry_s

    def wake_s(self) -> float:
        now = self._now_s()
        until = [self._looked_s + LEAST_S - now]
        if self._telemetry_s:
            until.append(self._next_s - now)
        return max(0.05, min(until))

    def connected(self) -> None:
        self.now()

    def now(self) -> None:
        """Told in the next turn whether it changed or not."""
        self._told = b""
        self._looked_s = -LEAST_S

    def turn(self, online: bool) -> None:
        now = self._now_s()
        if now - self._looked_s >= LEAST_S:
            self._looked_s = now
            self._tell_state(now)
        if self._telemetry_s and now >= self._next_s:
            self._next_s = now + self._telemetry_s
            payload = fleet_words.dump(self.telemetry())
            if not online or not self._ways.whisper(payload):
                self._ways.post([Letter(TELEMETRY, self._ways.telemetry_topic, payload)])

    def _tell_state(self, now: float) -> None:
        body = self.state()
        compared = fleet_words.dump(body)
        if compared == self._told and now - self._told_s < REFRESH_S:
            return
        self._told, self._told_s = compared, now
        self._ways.state(fleet_words.dump({**body, "time": fleet_words.moment(self._wall_s())}))

    def state(self) -> dict[str, object]:
        source = self._from
        asked, heat = source.inference.snapshot(), source.thermal.snapshot()
        update, fleet = source.updates.snapshot(), source.fleet(FleetSnapshot())
        done = [
            {"id": item.id, "command": item.command, "state": item.state, "code": item.code}
            for item in source.recent(RESULTS)
        ]
        return {
            "agent": stoker.__version__,
            "device": source.device,
            "board": source.board,
            "labels": dict(source.labels()),
            "clock": source.clock_word(),
            "model": {"name": asked.model, "state": asked.state, "engine": asked.engine},
            "paused": source.paused(),
            "thermal": {"state": heat.state, "wall_c": round(float(heat.wall_c), 1)},
            "memory": asked.memory_level,
            "update": {
                "state": update.state, "deployment": update.deployment, "version": update.version,
                "current": update.current, "previous": update.previous,
                "error": update.error_code, "frozen": update.frozen,
            },
            "groups": list(fleet.groups),
            "desired": dict(fleet.desired),
            "desired_stale": fleet.stale,
            "own_update": fleet.own_update,
            "storage": source.storage(),
            "results": done,
            "commands": list(source.commands),
        }  # fmt: skip

    def telemetry(self) -> dict[str, object]:
        asked, heat = self._from.inference.snapshot(), self._from.thermal.snapshot()
        taken = dict(self._from.meter())
        body: dict[str, object] = {
            "time": fleet_words.moment(self._wall_s()),
            **taken,
            "queue_depth": asked.queue_depth,
            "memory_bytes": asked.runner_memory_bytes,
            "headroom": round(float(heat.headroom), 3),
            "cap_khz": int(min(heat.cap_khz.values(), default=0)),
        }
        if heat.temperature_c is not None:
            body["temperature_c"] = round(float(heat.temperature_c), 1)
        if heat.power_w is not None:
            span = taken.get("interval_s", 0.0)
            body["power_w"] = round(float(heat.power_w), 2)
            body["joules"] = round(float(heat.power_w) * float(str(span)), 1)
        return body
