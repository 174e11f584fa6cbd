"""The fleet door of an agent without a broker: nothing is loaded, everything says so."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from stoker.errors import Unavailable
from stoker.events.fleet import FleetSnapshot, ProbeStep, Record
from stoker.ports.fleet import FleetListener
from stoker.units import Seconds


class NoFleet:
    """See ``ports.fleet.FleetDoor``."""

    def listen(self, listener: FleetListener) -> None:
        """Nothing ever changes."""

    def snapshot(self) -> FleetSnapshot:
        return FleetSnapshot()

    def test(self) -> Future[Sequence[ProbeStep]]:
        return _refused()

    def enroll(self) -> Future[str]:
        return _refused()

    def adopt(self, pem: str) -> Future[None]:  # noqa: ARG002
        return _refused()

    def recent(self) -> Future[Sequence[Record]]:
        return _refused()

    def start(self) -> None:
        """There is nothing to start."""

    def stop(self, timeout_s: Seconds) -> None:
        """Nor to stop."""


def _refused() -> Future[Any]:
    future: Future[Any] = Future()
    error = Unavailable(
        "cannot reach a fleet: no broker is configured", hint="set broker in [fleet]"
    )
    future.set_exception(error)
    return future
