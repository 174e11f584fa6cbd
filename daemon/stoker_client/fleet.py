"""The fleet connection as a program sees it: its state, its commands, a test of the way there.

Every method is one D-Bus call and raises StokerClientError. Looking is for everyone.
"""

from __future__ import annotations

from typing import Any, Final

from stoker_client.bus import AGENT_PATH, Bus

FLEET: Final = "org.stoker.Fleet1"
Facts = dict[str, Any]


class Fleet:
    """``Stoker.fleet``. Keys are those of org.stoker.Fleet1.xml."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def facts(self) -> Facts:
        """The properties by name."""
        return self._bus.properties(FLEET)

    def commands(self) -> list[Facts]:
        """Newest first."""
        return list(self._bus.call_at(AGENT_PATH, FLEET, "ListCommands", "()", (), "(aa{sv})"))

    def test(self) -> list[Facts]:
        """Each step of the way to the broker; administrators only."""
        return list(self._bus.call_at(AGENT_PATH, FLEET, "Test", "()", (), "(aa{sv})", 120.0))

    def enroll(self) -> str:
        """A new key on the device; PEM of the request for its certificate. Administrators only."""
        return str(self._bus.call_at(AGENT_PATH, FLEET, "Enroll", "()", (), "(s)", 60.0))

    def adopt(self, certificate: str) -> None:
        """PEM; taken into use once the broker has let us in with it. Administrators only."""
        self._bus.call_at(AGENT_PATH, FLEET, "Adopt", "(s)", (certificate,), "()", 120.0)
