"""Starts, stops and questions units of the system's systemd over D-Bus.

Every call has a short deadline. Whether we may is decided by polkit; which unit and when,
by the caller.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from gi.repository import Gio, GLib

from stoker.errors import NotAuthorized, StokerError, Unavailable

TIMEOUT_MS: Final = 3000
_NAME: Final = "org.freedesktop.systemd1"
_PATH: Final = "/org/freedesktop/systemd1"
# PyGObject makes its classes at first use, and of two threads that are first at the same time, one
# keeps a class without methods for good. One thread imports modules: here is their first use.
_MADE: Final = (
    GLib.Variant("(sa(sv))", ("", [])), GLib.VariantBuilder, GLib.VariantType, GLib.Error,
    Gio.DBusConnection, Gio.DBusConnectionFlags, Gio.DBusCallFlags, Gio.BusType,
    Gio.dbus_address_get_for_bus_sync,
)  # fmt: skip
_DENIED: Final = ("AccessDenied", "InteractiveAuthorizationRequired", "AuthFailed")


@dataclass(frozen=True, slots=True)
class UnitState:
    """``code`` and ``status`` are those of waitpid: 1 exited, 2 killed, 3 dumped core."""

    active: str  # active | activating | deactivating | inactive | failed | reloading
    job: bool  # something is still to be done with it
    result: str  # success | exit-code | signal | oom-kill | watchdog | resources | …
    code: int
    status: int
    control_group: str

    @property
    def ended(self) -> bool:
        return self.active in ("inactive", "failed") and not self.job


class SystemdUnits:
    """Any thread may call. ``address`` is for tests; else the system bus."""

    def __init__(self, address: str = "") -> None:
        self._address = address
        self._lock = threading.Lock()
        self._connection: Any = None

    def start(self, unit: str) -> None:
        """Queue the start and return; raises NotAuthorized or Unavailable."""
        self._manager("StartUnit", "(ss)", unit, "replace")

    def stop(self, unit: str) -> None:
        self._manager("StopUnit", "(ss)", unit, "replace")

    def kill(self, unit: str, signum: int) -> None:
        """To every process of the unit."""
        self._manager("KillUnit", "(ssi)", unit, "all", signum)

    def reset_failed(self, unit: str) -> None:
        """Forget a failed unit; fine if systemd has forgotten it already."""
        with contextlib.suppress(StokerError):
            self._manager("ResetFailedUnit", "(s)", unit)

    def set_allowed_cpus(self, unit: str, cpus: Sequence[int]) -> None:
        """Until the next boot; () = all. systemd writes it a moment after the answer."""
        mask = bytearray(max(cpus, default=-1) // 8 + 1)
        for cpu in cpus:
            mask[cpu // 8] |= 1 << cpu % 8
        properties = [("AllowedCPUs", GLib.Variant("ay", bytes(mask)))]
        self._manager("SetUnitProperties", "(sba(sv))", unit, True, properties)

    def state(self, unit: str) -> UnitState | None:
        """None = systemd does not know it: it ended well and was forgotten."""
        try:
            (path,) = self._manager("GetUnit", "(s)", unit)
            facts = self._properties(path, "Unit") | self._properties(path, "Service")
        except Unavailable as error:
            if "NoSuchUnit" in error.message or "UnknownObject" in error.message:
                return None
            raise
        return UnitState(
            active=facts.get("ActiveState", ""),
            job=facts.get("Job", (0, "/"))[0] != 0,
            result=facts.get("Result", ""),
            code=facts.get("ExecMainCode", 0),
            status=facts.get("ExecMainStatus", 0),
            control_group=facts.get("ControlGroup", ""),
        )

    def _manager(self, method: str, signature: str, *arguments: object) -> tuple[Any, ...]:
        body = GLib.Variant(signature, arguments)
        return self._call(_PATH, f"{_NAME}.Manager", method, body, arguments[0])

    def _properties(self, path: str, interface: str) -> dict[str, Any]:
        body = GLib.Variant("(s)", (f"{_NAME}.{interface}",))
        (facts,) = self._call(path, "org.freedesktop.DBus.Properties", "GetAll", body, path)
        return dict(facts)

    def _call(
        self, path: str, interface: str, method: str, body: Any, what: object
    ) -> tuple[Any, ...]:
        try:
            reply = self._bus().call_sync(
                _NAME, path, interface, method, body, None,
                Gio.DBusCallFlags.NO_AUTO_START, TIMEOUT_MS, None,
            )  # fmt: skip
        except GLib.Error as error:
            message = f"cannot {method} {what}: {error.message}"
            if any(word in error.message for word in _DENIED):
                hint = "are the polkit rules of the package installed?"
                raise NotAuthorized(message, hint=hint) from error
            raise Unavailable(message) from error
        return tuple(reply.unpack())

    def _bus(self) -> Any:
        """A connection of our own: opened late, and anew when dbus-daemon was restarted."""
        with self._lock:
            if self._connection is None or self._connection.is_closed():
                address = self._address or Gio.dbus_address_get_for_bus_sync(
                    Gio.BusType.SYSTEM, None
                )
                flags = (
                    Gio.DBusConnectionFlags.AUTHENTICATION_CLIENT
                    | Gio.DBusConnectionFlags.MESSAGE_BUS_CONNECTION
                )
                self._connection = Gio.DBusConnection.new_for_address_sync(
                    address, flags, None, None
                )
            return self._connection
