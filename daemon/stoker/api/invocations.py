"""One incoming D-Bus call that is answered later, from any thread, exactly once.

This is the only place that knows how GLib's version changes the ownership of an
invocation. It decides nothing about who may call what.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from gi.repository import Gio, GLib, GObject

from stoker.api import errormap
from stoker.errors import Busy, InternalError, InvalidRequest, StokerError

log = logging.getLogger(__name__)

OnCall = Callable[[str, str, str, Any, "Reply"], None]
"""(sender, interface, method, parameters, reply) in the main loop."""


class Reply:
    """The answer slot of one call. The first of ``send``/``fail`` wins; the rest is dropped."""

    def __init__(self, invocation: Any, *, surplus_reference: bool) -> None:
        self._invocation = invocation
        self._surplus = surplus_reference
        self._lock = threading.Lock()

    def send(self, body: Any, fds: Sequence[int] = ()) -> None:
        """``body``: a GLib tuple variant or None. ``fds`` are duplicated, not taken."""
        invocation = self._take()
        if invocation is None:
            return
        if fds:
            passed = Gio.UnixFDList.new()
            for fd in fds:
                passed.append(fd)
            invocation.return_value_with_unix_fd_list(body, passed)
        else:
            invocation.return_value(body)
        self._release(invocation)

    def descriptor(self, index: int) -> int:
        """A duplicate of a descriptor that came with the call; the caller closes it.

        Raises InvalidRequest when the call brought no such descriptor, Busy when we have none
        left. Must not be called after the answer.
        """
        brought = self._invocation.get_message().get_unix_fd_list()
        if brought is None or not 0 <= index < brought.get_length():
            raise InvalidRequest(f"cannot read the call: it brought no descriptor {index}")
        try:
            return int(brought.get(index))
        except GLib.Error as error:
            raise Busy(f"cannot take a descriptor: {error.message}", hint="try again") from error

    def fail(self, error: BaseException) -> None:
        """A typed error as it is; anything else is a fault of ours, logged in full."""
        invocation = self._take()
        if invocation is None:
            return
        if not isinstance(error, StokerError):
            log.error("fault in a D-Bus method", exc_info=error)
            error = InternalError(f"cannot answer the call: {type(error).__name__}: {error}")
        invocation.return_dbus_error(*errormap.to_dbus(error))
        self._release(invocation)

    def _take(self) -> Any:
        with self._lock:
            taken, self._invocation = self._invocation, None
        return taken

    def _release(self, invocation: Any) -> None:
        # GDBus hands the closure one reference that return_*() should consume; PyGObject
        # takes another for that call, so GDBus's own would stay for ever (1.5 KB and the
        # arguments each). super() reaches g_object_unref behind PyGObject's refusal.
        if self._surplus:
            super(GObject.Object, invocation).unref()  # type: ignore[misc]


def register(connection: Any, path: str, info: Any, on_call: OnCall) -> int:
    """Register an object whose methods *and* properties arrive as calls; returns its id.

    Without property closures GDBus checks the property's name and passes Get and GetAll
    on as calls, so that they too can look at the sender and answer later.
    GLib ≥ 2.84 has ``register_object_with_closures2``, which keeps its own count; older
    GLib leaves a reference behind on each call (see ``Reply._release``).
    """
    modern = getattr(connection, "register_object_with_closures2", None)
    add = modern or connection.register_object
    try:
        return int(add(path, info, _Closure(on_call, surplus=modern is None), None, None))
    except GLib.Error as error:
        raise InternalError(f"cannot publish {path}: {error.message}") from error


class _Closure:
    """What GDBus calls; there may be thousands, so each is one small thing."""

    __slots__ = ("_on_call", "_surplus")

    def __init__(self, on_call: OnCall, *, surplus: bool) -> None:
        self._on_call, self._surplus = on_call, surplus

    def __call__(
        self,
        _con: Any,
        sender: str,
        _path: str,
        iface: str,
        method: str,
        args: Any,
        invocation: Any,
    ) -> None:
        reply = Reply(invocation, surplus_reference=self._surplus)
        try:
            self._on_call(sender, iface, method, args, reply)
        except Exception as error:
            reply.fail(error)
