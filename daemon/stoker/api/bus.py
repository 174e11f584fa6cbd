"""The bus connection: opened through pydbus, watched for its end, closed in order.

Where to connect comes from configuration. It publishes nothing by itself and knows no
interface. A lost connection or name is reported to main, which ends the process: systemd
starts it again, and half a service on a bus is worse than none.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from gi.repository import Gio, GLib
from pydbus.bus import Bus as PydbusBus

from stoker.errors import NotAuthorized, StokerError, Unavailable

_T = TypeVar("_T")
log = logging.getLogger(__name__)

_FLUSH_LIMIT_S = 1.0
_SHARED = {"system": Gio.BusType.SYSTEM, "session": Gio.BusType.SESSION}
_CLIENT = (
    Gio.DBusConnectionFlags.AUTHENTICATION_CLIENT | Gio.DBusConnectionFlags.MESSAGE_BUS_CONNECTION
)


class Bus:
    """``con`` is the Gio.DBusConnection of ``pydbus``; ``name`` our unique name."""

    def __init__(self, pydbus_bus: Any, *, shared: bool) -> None:
        self._pydbus = pydbus_bus
        self._shared = shared
        self._owned: Any = None
        self._leaving = False  # then the end of the name or the bus is our own doing
        self._closed = False
        self._lost: Callable[[StokerError], None] = lambda error: log.error("%s", error)
        self.con: Any = pydbus_bus.con
        # GLib would end the process by SIGTERM when the bus goes away; main decides that.
        self.con.set_exit_on_close(False)
        self.name: str = self.con.get_unique_name() or ""
        self._handlers = [self.con.connect("closed", self._on_closed)]
        self._subscriptions: list[int] = []

    @classmethod
    def connect(cls, where: str) -> Bus:
        """``where``: "system", "session" or a D-Bus address. Raises Unavailable."""
        try:
            # Not pydbus.connect(): why, says stoker_client.bus.pydbus_bus.
            if where in _SHARED:
                return cls(PydbusBus(Gio.bus_get_sync(_SHARED[where], None)), shared=True)
            con = Gio.DBusConnection.new_for_address_sync(where, _CLIENT, None, None)
            return cls(PydbusBus(con), shared=False)
        except GLib.Error as error:
            raise Unavailable(
                f"cannot connect to bus {where!r}: {_reason(error)}",
                hint="is dbus-daemon running? for development: stokerd --session",
            ) from error

    def on_lost(self, lost: Callable[[StokerError], None]) -> None:
        """Called in the main loop when the connection or an owned name is gone."""
        self._lost = lost

    def own(self, name: str) -> None:
        """Take a well-known name or raise Unavailable / NotAuthorized. Blocks: start-up only."""
        self._subscriptions.append(
            self.con.signal_subscribe(
                "org.freedesktop.DBus", "org.freedesktop.DBus", "NameLost",
                "/org/freedesktop/DBus", name, Gio.DBusSignalFlags.NO_MATCH_RULE,
                lambda *_signal: self._report(f"cannot keep bus name {name}: it was taken away"),
            )
        )  # fmt: skip
        try:
            self._owned = self._pydbus.request_name(name, allow_replacement=False)
        except GLib.Error as error:
            raise NotAuthorized(
                f"cannot own bus name {name}: {_reason(error)}",
                hint="the bus policy lets only users stoker and root own it; "
                "is org.stoker.Agent1.conf in /usr/share/dbus-1/system.d?",
            ) from error
        except RuntimeError as error:
            raise Unavailable(
                f"cannot own bus name {name}: another process has it",
                hint=f"is stokerd running already? busctl status {name}",
            ) from error

    def disown(self) -> None:
        """Give the name back, so that callers get "no such service" while we stop."""
        owned, self._owned = self._owned, None
        if owned is not None and not self.con.is_closed():
            self._leaving = True
            with contextlib.suppress(GLib.Error):
                owned.unown()

    def emit(
        self, path: str, interface: str, signal: str, body: Any, to: str | None = None
    ) -> None:
        """Queue a signal (any thread); ``to`` makes it unicast. A closed bus drops it."""
        with contextlib.suppress(GLib.Error):
            self.con.emit_signal(to, path, interface, signal, body)

    def close(self) -> None:
        """Give the name back, let queued replies go out, disconnect. Safe to call twice."""
        if self._closed:
            return
        self.disown()
        self._closed = self._leaving = True
        for subscription in self._subscriptions:
            self.con.signal_unsubscribe(subscription)
        for handler in self._handlers:
            self.con.disconnect(handler)
        if self.con.is_closed():
            return
        with contextlib.suppress(GLib.Error):
            self._flush()
            if not self._shared:
                self.con.close_sync(None)

    def _flush(self) -> None:
        limit = Gio.Cancellable.new()
        timer = threading.Timer(_FLUSH_LIMIT_S, limit.cancel)
        timer.daemon = True
        timer.start()
        try:
            self.con.flush_sync(limit)
        finally:
            timer.cancel()

    def _on_closed(self, _con: Any, _vanished: bool, error: Any) -> None:
        self._report(f"cannot use the bus: {_reason(error) if error else 'connection closed'}")

    def _report(self, message: str) -> None:
        if not self._leaving:
            self._lost(Unavailable(message, hint="is dbus-daemon running?"))


def post(work: Callable[[], None]) -> None:
    """Run ``work`` in the main loop, in the order posted; callable from any thread."""

    def once() -> bool:
        work()
        return False

    GLib.idle_add(once, priority=GLib.PRIORITY_DEFAULT)


def on_main(work: Callable[[], _T]) -> Future[_T]:
    """``work``'s result, made in the main loop; for threads that wait for it."""
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:  # one caller's fault must not end the loop
            future.set_exception(error)

    post(run)
    return future


def after(seconds: float, work: Callable[[], None]) -> None:
    """Run ``work`` in the main loop, once, after ``seconds``."""

    def once() -> bool:
        work()
        return False

    GLib.timeout_add(max(1, round(seconds * 1000)), once)


def _reason(error: Any) -> str:
    return str(error.message).removeprefix("GDBus.Error:")
