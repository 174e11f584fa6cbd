"""Home Assistant as a guest: discovered, shown, and heard, for consent and nothing more.

Fleet thread only. What it writes is unsigned; the restart button exists only where the
device's owner has allowed it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import stoker
from stoker.core import home_assistant
from stoker.core.home_assistant import Places
from stoker.events.fleet import Message
from stoker.ports.updates import UpdateDoor


@dataclass(frozen=True, slots=True)
class House:
    """What the guest sees and may do."""

    retain: Callable[[str, bytes], None]
    updates: UpdateDoor
    pending: Callable[[], Mapping[str, object] | None]
    consent: Callable[[], None]
    restart: Callable[[], object]


class HomeAssistant:
    """``prefix`` "" = there is no guest."""

    def __init__(
        self, house: House, places: Places, device: str, prefix: str, *, restart: bool
    ) -> None:
        self._house, self._places, self._device = house, places, device
        self._prefix, self._restart = prefix, restart
        self._told = b""

    def subscriptions(self) -> tuple[str, ...]:
        return (self._places.button,) if self._prefix else ()

    def connected(self) -> None:
        if self._prefix:
            topic = f"{self._prefix}/device/{self._device}/config"
            document = home_assistant.discovery(
                self._device, stoker.__version__, self._places, restart=self._restart
            )
            self._house.retain(topic, document)
            self._told = b""

    def turn(self) -> None:
        if not self._prefix:
            return
        now = self._house.updates.snapshot()
        installed = home_assistant.label("set", now.current) if now.current else "as packaged"
        found = home_assistant.update(installed, self._house.pending(), busy=now.state != "idle")
        if found != self._told:
            self._told = found
            self._house.retain(self._places.update, found)

    def heard(self, message: Message) -> bool:
        """Whether it was for us; a retained press is nobody's."""
        if not self._prefix or message.topic != self._places.button:
            return False
        if message.retained:
            return True
        if message.payload == home_assistant.INSTALL and self._house.pending() is not None:
            self._house.consent()
        elif message.payload == home_assistant.RESTART and self._restart:
            self._house.restart()
        return True
