"""Whether the network costs money, as NetworkManager says; without it nobody knows, which is no."""

from __future__ import annotations

from typing import Final

from gi.repository import Gio, GLib

NAME: Final = "org.freedesktop.NetworkManager"
PATH: Final = "/org/freedesktop/NetworkManager"
_COSTS: Final = (1, 3)  # NM_METERED_YES, NM_METERED_GUESS_YES (NetworkManager's NMMetered)
_WAIT_MS: Final = 2000


def metered(address: str = "") -> bool:
    """``address`` of a bus; "" = the system's. It starts nothing and waits two seconds at most."""
    flags = Gio.DBusConnectionFlags.AUTHENTICATION_CLIENT
    flags |= Gio.DBusConnectionFlags.MESSAGE_BUS_CONNECTION
    try:
        if address:
            bus = Gio.DBusConnection.new_for_address_sync(address, flags, None, None)
        else:
            bus = Gio.bus_get_sync(Gio.BusType.SYSTEM, None)
        (value,) = bus.call_sync(
            NAME, PATH, "org.freedesktop.DBus.Properties", "Get",
            GLib.Variant("(ss)", (NAME, "Metered")), GLib.VariantType("(v)"),
            Gio.DBusCallFlags.NO_AUTO_START, _WAIT_MS, None,
        ).unpack()  # fmt: skip
    except GLib.Error:
        return False
    return value in _COSTS
