"""What NetworkManager says of the network's price, and silence where there is none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from gi.repository import Gio, GLib

from stoker.drivers.network_cost import NAME, PATH, metered
from stoker.tour.private_bus import PrivateBus

pytestmark = pytest.mark.bus
XML = f"""<node><interface name="{NAME}">
<property name="Metered" type="u" access="read"/></interface></node>"""


class Manager:
    """NetworkManager, as far as we ask it; its own loop."""

    def __init__(self, address: str) -> None:
        self.says = 0
        self._context = GLib.MainContext()
        self._loop = GLib.MainLoop(self._context)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(address,), daemon=True)
        self._thread.start()
        assert self._ready.wait(5)

    def stop(self) -> None:
        self._loop.quit()
        self._thread.join(5)

    def _run(self, address: str) -> None:
        self._context.push_thread_default()
        flags = Gio.DBusConnectionFlags.AUTHENTICATION_CLIENT
        flags |= Gio.DBusConnectionFlags.MESSAGE_BUS_CONNECTION
        bus = Gio.DBusConnection.new_for_address_sync(address, flags, None, None)
        info = Gio.DBusNodeInfo.new_for_xml(XML).interfaces[0]

        def read(*_words: Any) -> Any:
            return GLib.Variant("u", self.says)

        bus.register_object(PATH, info, None, read, None)
        Gio.bus_own_name_on_connection(
            bus, NAME, Gio.BusNameOwnerFlags.NONE, lambda *_: self._ready.set(), None
        )
        self._loop.run()
        bus.close_sync(None)
        self._context.pop_thread_default()


@pytest.fixture
def manager(private_bus: PrivateBus) -> Iterator[Manager]:
    made = Manager(private_bus.address)
    yield made
    made.stop()


@pytest.mark.parametrize(
    ("says", "costs"), [(0, False), (1, True), (2, False), (3, True), (4, False)]
)
def test_yes_and_a_guessed_yes_cost_money(
    private_bus: PrivateBus, manager: Manager, says: int, costs: bool
) -> None:
    manager.says = says
    assert metered(private_bus.address) is costs


def test_without_a_network_manager_or_a_bus_nothing_is_known(private_bus: PrivateBus) -> None:
    assert metered(private_bus.address) is False
    assert metered("unix:path=/nowhere/at/all") is False
