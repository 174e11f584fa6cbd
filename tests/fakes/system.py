"""A clock, a notifier and a state file that behave, without time, systemd or disk."""

from __future__ import annotations

import json
from collections.abc import Mapping

from stoker.errors import InternalError
from stoker.events.memory import MemoryFacts, Pressure
from stoker.units import Bytes, Seconds


class FakeClock:
    """Stands still until somebody moves it."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s

    def monotonic_s(self) -> Seconds:
        return Seconds(self.now_s)

    def advance(self, by_s: float) -> None:
        self.now_s += by_s


class RecordingNotifier:
    """Keeps what was said, in order."""

    def __init__(self, watchdog_interval_s: float = 0.0) -> None:
        self.said: list[str] = []
        self._interval_s = watchdog_interval_s

    def ready(self) -> None:
        self.said.append("ready")

    def status(self, text: str) -> None:
        self.said.append(f"status {text}")

    def watchdog(self) -> None:
        self.said.append("watchdog")

    def reloading(self) -> None:
        self.said.append("reloading")

    def stopping(self) -> None:
        self.said.append("stopping")

    def watchdog_interval_s(self) -> Seconds:
        return Seconds(self._interval_s)


class FakeMemory:
    """As much as a test says."""

    def __init__(self, available_bytes: int = 8 << 30, total_bytes: int = 16 << 30) -> None:
        self.available_bytes, self.total_bytes = available_bytes, total_bytes
        self.seen: Pressure | None = Pressure(0.0, 0.0)

    def facts(self, pid: int = 0) -> MemoryFacts:
        return MemoryFacts(Bytes(self.total_bytes), Bytes(self.available_bytes))

    def pressure(self, pid: int = 0) -> Pressure | None:
        return self.seen


class MemoryStateFile:
    """Holds JSON text, so that what a real file could not hold fails here too."""

    def __init__(self) -> None:
        self.text: str | None = None
        self.broken: str | None = None

    def load(self) -> Mapping[str, object]:
        if self.text is None:
            return {}
        try:
            state = json.loads(self.text)
        except ValueError:
            state = None
        if not isinstance(state, dict):
            self.text, self.broken = None, self.text
            return {}
        return state

    def save(self, state: Mapping[str, object]) -> None:
        try:
            self.text = json.dumps(state)
        except (TypeError, ValueError) as error:
            raise InternalError(f"cannot save state: {error}") from error
