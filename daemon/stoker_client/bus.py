"""The connection to the bus and the calls on it; GLib's errors become ours here.

Only this module and nothing above it touches pydbus and GLib, and it imports them when
a connection is wanted. Calls wait in a thread, because a thread inside GLib cannot be
interrupted: so Ctrl-C works at any moment.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from stoker_client import handover
from stoker_client.errors import StokerClientError, from_dbus
from stoker_client.requests import Pairs

BUS_NAME: Final = "org.stoker.Agent1"
AGENT_PATH: Final = "/org/stoker/Agent1"
JOB: Final = "org.stoker.Job1"
ADDRESS_VARIABLE: Final = "STOKER_BUS_ADDRESS"

T = TypeVar("T")
_connecting = threading.Lock()


class Bus:
    """One connection. ``address``: system, session, a D-Bus address, or None for the default."""

    def __init__(self, address: str | None = None) -> None:
        self.address = address or os.environ.get(ADDRESS_VARIABLE) or "system"
        self._bus: Any = None
        self._proxy: Any = None

    def call(self, interface: str, method: str, *args: object, timeout_s: float = 25.0) -> Any:
        """A method of the agent's object through its pydbus proxy."""

        def work() -> Any:
            if self._proxy is None:
                self._proxy = self.connected().get(BUS_NAME, AGENT_PATH, timeout=timeout_s)
            return getattr(self._proxy[interface], method)(*args, timeout=timeout_s)

        try:
            return self._run(work)
        except KeyError as fault:  # pydbus: the object does not (yet) have the interface
            raise from_dbus("org.freedesktop.DBus.Error.UnknownInterface", str(fault)) from fault

    def call_at(
        self, path: str, interface: str, method: str, signature: str, args: Sequence[object],
        out: str, timeout_s: float = 25.0,
    ) -> Any:  # fmt: skip
        """A method of any object of the agent; one out argument is unwrapped."""

        # A pydbus proxy would introspect each object before its first call.
        def work() -> Any:
            from gi.repository import GLib

            reply = self.connected().con.call_sync(
                BUS_NAME, path, interface, method, GLib.Variant(signature, tuple(args)),
                GLib.VariantType.new(out), 0, round(timeout_s * 1000), None,
            )  # fmt: skip
            values = reply.unpack()
            return values[0] if len(values) == 1 else values

        return self._run(work)

    def call_dict(
        self, path: str, interface: str, method: str, pairs: Pairs, out: str = "()"
    ) -> Any:
        """A method whose one argument is an ``a{sv}``."""
        return self.call_at(path, interface, method, "(a{sv})", (self._packed(pairs),), out)

    def properties(
        self, interface: str, timeout_s: float = 25.0, path: str = AGENT_PATH
    ) -> dict[str, Any]:
        """All properties of one interface, read at once."""
        owner = "org.freedesktop.DBus.Properties"
        if path != AGENT_PATH:
            found = self.call_at(path, owner, "GetAll", "(s)", (interface,), "(a{sv})", timeout_s)
        else:
            found = self.call(owner, "GetAll", interface, timeout_s=timeout_s)
        return dict(found)

    def open_stream(
        self, path: str, interface: str, method: str, request: Pairs, options: Pairs,
        timeout_s: float = 25.0,
    ) -> tuple[str, int]:  # fmt: skip
        """(job path, descriptor of the stream); the descriptor is the caller's to close.

        A large request goes as a memory file, unless the agent is too old for that.
        """
        if handover.worth_it(request):
            with contextlib.suppress(_TooOldError):
                return self._open_with_file(path, interface, method, request, options, timeout_s)
        return self._open(
            path, interface, method, "(a{sv}a{sv})",
            lambda: (variants(request), variants(options)), timeout_s,
        )  # fmt: skip

    def read_result(self, job: str) -> dict[str, Any]:
        """GetResultFd of a job that has ended."""
        reply, descriptors = self._call_with_files(
            job, JOB, "GetResultFd", "()", tuple, "(h)", 25.0
        )
        return handover.read(int(descriptors.get(reply.unpack()[0])))

    def _open_with_file(
        self, path: str, interface: str, method: str, request: Pairs, options: Pairs,
        timeout_s: float,
    ) -> tuple[str, int]:  # fmt: skip
        fd = handover.sealed(request)
        try:
            return self._open(
                path, interface, f"{method}Fd", "(ha{sv})",
                lambda: (0, variants(options)), timeout_s, fd,
            )  # fmt: skip
        except StokerClientError as error:
            if error.dbus_name.endswith("UnknownMethod"):
                raise _TooOldError from error
            raise
        finally:
            os.close(fd)

    def _open(
        self, path: str, interface: str, method: str, signature: str,
        body: Callable[[], tuple[Any, ...]], timeout_s: float, *sent: int,
    ) -> tuple[str, int]:  # fmt: skip
        reply, descriptors = self._call_with_files(
            path, interface, method, signature, body, "(oh)", timeout_s, *sent
        )
        job, index = reply.unpack()
        return str(job), int(descriptors.get(index))

    def _call_with_files(
        self, path: str, interface: str, method: str, signature: str,
        body: Callable[[], tuple[Any, ...]], out: str, timeout_s: float, *sent: int,
    ) -> tuple[Any, Any]:  # fmt: skip
        """(reply, its descriptors). pydbus proxies cannot pass any; its connection can."""

        def work() -> tuple[Any, Any]:
            from gi.repository import Gio, GLib

            found: tuple[Any, Any] = self.connected().con.call_with_unix_fd_list_sync(
                BUS_NAME,
                path,
                interface,
                method,
                GLib.Variant(signature, body()),
                GLib.VariantType.new(out),
                0,
                round(timeout_s * 1000),
                # the list takes its own: ours stay ours
                _descriptors(Gio, sent) if sent else None,
                None,
            )
            return found

        return self._run(work)

    def call_with_files(
        self, path: str, interface: str, method: str, signature: str,
        body: Callable[[], tuple[Any, ...]], out: str, *sent: int, timeout_s: float = 120.0,
    ) -> tuple[tuple[Any, ...], list[int]]:  # fmt: skip
        """(out arguments, descriptors that came, which are the caller's to close). ``sent`` stay
        the caller's; ``body`` makes the arguments, an ``h`` being an index into them.
        """
        reply, descriptors = self._call_with_files(
            path, interface, method, signature, body, out, timeout_s, *sent
        )
        return reply.unpack(), list(descriptors.steal_fds()) if descriptors else []

    def _packed(self, pairs: Pairs) -> dict[str, Any]:
        return self._run(lambda: variants(pairs))

    def cancel_job(self, job: str) -> None:
        """Best effort and bounded: the closed pipe already ends the job."""

        def work() -> None:
            con = self.connected().con
            con.call_sync(BUS_NAME, job, JOB, "Cancel", None, None, 0, 1000, None)

        with contextlib.suppress(StokerClientError):
            self._run(work)

    def close(self) -> None:
        """Leave the bus. A connection that GLib shares in the process stays."""
        bus, self._bus, self._proxy = self._bus, None, None
        if bus is not None and bus.autoclose:
            with contextlib.suppress(Exception):
                bus.con.close_sync(None)

    def connected(self) -> Any:
        """pydbus's bus, connected; again when its connection has been closed."""
        if self._bus is not None and self._bus.con.is_closed():
            self._bus = self._proxy = None
        # PyGObject makes its classes when they are first used, and two threads that do so at
        # once find one without its values.
        with _connecting:
            if self._bus is None:
                self._bus = self._connect()
        return self._bus

    def _connect(self) -> Any:
        bus = pydbus_bus(self.address)
        # GLib's default is to end the process when the bus goes away.
        bus.con.set_exit_on_close(False)
        return bus

    def _run(self, work: Callable[[], T]) -> T:
        done, result, fault = threading.Event(), list[T](), list[BaseException]()

        def body() -> None:
            try:
                result.append(work())
            except BaseException as error:
                fault.append(error)
            finally:
                done.set()

        threading.Thread(target=body, name="stoker-client", daemon=True).start()
        done.wait()
        if fault:
            raise self.typed(fault[0]) from fault[0]
        return result[0]

    def typed(self, fault: BaseException) -> BaseException:
        """GLib's error as ours, and what D-Bus cannot carry; others as they are."""
        if isinstance(fault, OverflowError | UnicodeError):  # a number too large, half a character
            return StokerClientError("invalid-request", f"cannot send the request: {fault}")
        if isinstance(fault, ImportError):
            return StokerClientError(
                "unavailable",
                f"cannot load the D-Bus library: {fault}",
                hint="apt install python3-pydbus python3-gi",
            )
        from gi.repository import Gio, GLib

        if not isinstance(fault, GLib.Error):
            return fault
        name = Gio.DBusError.get_remote_error(fault)
        message = str(fault.message)
        if name:
            return from_dbus(name, message.removeprefix(f"GDBus.Error:{name}: "))
        if fault.matches(Gio.io_error_quark(), Gio.IOErrorEnum.TIMED_OUT):
            return from_dbus("org.freedesktop.DBus.Error.Timeout", message)
        where = self.address if self.address not in ("system", "session") else ""
        return StokerClientError(
            "unavailable",
            f"cannot reach the {'bus at ' + where if where else self.address + ' bus'}: {message}",
            hint="is the D-Bus daemon running, and is the address right?",
        )


def pydbus_bus(where: str) -> Any:
    """pydbus's Bus on "system", "session" or a connection of its own to an address.

    pydbus.connect() and its kin keep the Bus as an attribute of the connection. PyGObject then
    needs Python's lock to tell when GDBus takes a reference, and takes the connection down with
    that lock held: when a message comes meanwhile, on any connection, the process stands for good.
    """
    from gi.repository import Gio
    from pydbus.bus import Bus as PydbusBus

    shared = {"system": Gio.BusType.SYSTEM, "session": Gio.BusType.SESSION}
    if where in shared:
        return PydbusBus(Gio.bus_get_sync(shared[where], None))
    flags = Gio.DBusConnectionFlags
    flags = flags.AUTHENTICATION_CLIENT | flags.MESSAGE_BUS_CONNECTION
    bus = PydbusBus(Gio.DBusConnection.new_for_address_sync(where, flags, None, None))
    bus.autoclose = True
    return bus


class _TooOldError(Exception):
    """The agent does not know the method."""


def _descriptors(gio: Any, sent: Sequence[int]) -> Any:
    """GIO's list of duplicates."""
    held = gio.UnixFDList.new()
    for fd in sent:
        held.append(fd)
    return held


def plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Properties named as Python and JSON name things: LastError is last_error."""
    return {re.sub(r"(?<!^)(?=[A-Z])", "_", key).lower(): value for key, value in facts.items()}


def variants(pairs: Pairs) -> dict[str, Any]:
    """An ``a{sv}``; raises ``invalid-request`` for what D-Bus cannot carry."""
    from gi.repository import GLib

    try:
        return {key: GLib.Variant(kind, value) for key, (kind, value) in pairs.items()}
    except (TypeError, OverflowError, ValueError) as fault:
        raise StokerClientError("invalid-request", f"cannot send the request: {fault}") from fault
