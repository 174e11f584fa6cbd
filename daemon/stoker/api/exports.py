"""Objects on the bus: each call is sized, its caller identified, answered once.

The rooms behind (``agent``, ``inference``, ``job``, ``thermal``) give tables of methods
and a way to read properties; this module gives them a parsed call and packs what they
return by the XML's signature. It decides no access.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any, Protocol

from gi.repository import GLib

from stoker.api import contract, invocations
from stoker.api.bus import Bus
from stoker.api.callers import Callers
from stoker.api.invocations import Reply
from stoker.api.unpacking import unpack
from stoker.errors import RequestTooLarge, StokerError, Unavailable
from stoker.events.inference import Owner

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """Out arguments of a method; an ``h`` among them is an index into ``fds``."""

    values: tuple[Any, ...] = ()
    fds: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Later:
    """An answer that a future will bring. ``release`` runs after the reply, sent or failed."""

    future: Future[Any]
    convert: Callable[[Any], Any]
    release: Callable[[], None] = lambda: None


Method = Callable[[Owner, tuple[Any, ...]], Answer | Later]
"""(caller, in arguments) -> answer; raises StokerError. An ``h`` arrives as a descriptor that
is closed when the method returns."""

Properties = Callable[[Owner], Mapping[str, Any] | Later]
"""All properties by name, unpacked; a Later converts to such a mapping."""


@dataclass(frozen=True, slots=True)
class Door:
    interface: str
    methods: Mapping[str, Method]
    properties: Properties = lambda _owner: {}

    def door(self) -> Door:
        """Itself: the ``Room`` of a door that is there for good."""
        return self


class Room(Protocol):
    """What is behind an object."""

    def door(self) -> Door: ...


class Exports:
    """Main loop only, but for replies, which go out from whichever thread has them."""

    def __init__(self, bus: Bus, callers: Callers, max_call_bytes: int) -> None:
        self._con = bus.con
        self._callers = callers
        self.max_call_bytes = max_call_bytes
        self._registered: set[int] = set()
        self._pending: set[Reply] = set()

    def add(self, path: str, door: Door) -> int:
        return self._add(path, door.interface, _Calls(self, door))

    def add_rare(self, path: str, interface: str, room: Room) -> int:
        """The door is made anew for each call: of the thousands of objects that few calls ever
        come for, each is little to keep, and to look through for Python's collector."""
        return self._add(path, interface, _Calls(self, room))

    def _add(self, path: str, interface: str, calls: _Calls) -> int:
        number = invocations.register(self._con, path, contract.interface_info(interface), calls)
        self._registered.add(number)
        return number

    def remove(self, number: int) -> None:
        if number in self._registered:
            self._registered.discard(number)
            self._con.unregister_object(number)

    def close(self) -> None:
        """Take every object away; calls still open get ``unavailable``."""
        for number in tuple(self._registered):
            self.remove(number)
        for reply in tuple(self._pending):
            reply.fail(Unavailable("cannot finish the call: stokerd is stopping"))
        self._pending.clear()

    def call(self, door: Door, head: tuple[str, str, str], args: Any, reply: Reply) -> None:
        """One call of an object; raises a StokerError that is its answer."""
        sender, interface, method = head
        size = args.get_size()
        if size > self.max_call_bytes:
            raise RequestTooLarge(
                f"cannot take the call: {size} bytes, the limit is {self.max_call_bytes}",
                details={"size_bytes": size, "limit_bytes": self.max_call_bytes},
            )
        values = unpack(args)
        self._pending.add(reply)

        def identified(owner: Owner | StokerError) -> None:
            if isinstance(owner, StokerError):
                self._finish(reply, owner)
            elif interface == contract.PROPERTIES:
                self._run(reply, lambda: _read(door, owner, method, values))
            else:
                signature = contract.out_signature(interface, method)
                self._run(reply, lambda: _call(door, owner, method, values, reply), signature)

        self._callers.identify(sender, identified)

    def _run(self, reply: Reply, act: Callable[[], Answer | Later], signature: str = "") -> None:
        """Without a signature the answer is a packed variant already (properties)."""
        try:
            result = act()
        except Exception as error:
            self._finish(reply, error)
            return
        if isinstance(result, Answer):
            self._send(reply, result, signature)
        else:
            # Not the Later itself: with its future it would be a ring, for the collector alone.
            convert, release = result.convert, result.release

            def ended(future: Future[Any]) -> None:
                try:
                    self._ended(reply, lambda: convert(future.result()), signature)
                finally:
                    release()

            result.future.add_done_callback(ended)

    def _ended(self, reply: Reply, answer: Callable[[], Answer], signature: str) -> None:
        try:
            self._send(reply, answer(), signature)
        except CancelledError:
            self._finish(reply, Unavailable("cannot finish the call: the service stopped"))
        except BaseException as error:  # whatever it was, a reply must go out
            self._finish(reply, error)

    def _send(self, reply: Reply, answer: Answer, signature: str) -> None:
        try:
            body = GLib.Variant(signature, answer.values) if signature else answer.values[0]
        except Exception as error:  # a room returned what its signature does not allow
            self._finish(reply, error)
            return
        self._pending.discard(reply)
        with contextlib.suppress(GLib.Error):
            reply.send(body, answer.fds)

    def _finish(self, reply: Reply, error: BaseException) -> None:
        self._pending.discard(reply)
        reply.fail(error)


class _Calls:
    """``OnCall`` of one object; one thing, where a closure would be five."""

    __slots__ = ("_exports", "_room")

    def __init__(self, exports: Exports, room: Room) -> None:
        self._exports, self._room = exports, room

    def __call__(self, sender: str, interface: str, method: str, args: Any, reply: Reply) -> None:
        self._exports.call(self._room.door(), (sender, interface, method), args, reply)


def _call(
    door: Door, owner: Owner, method: str, values: tuple[Any, ...], reply: Reply
) -> Answer | Later:
    """One method; its descriptors are open while it runs and no longer."""
    arguments, opened = list(values), list[int]()
    try:
        for at in contract.takes_descriptors(door.interface, method):
            opened.append(reply.descriptor(arguments[at]))
            arguments[at] = opened[-1]
        return door.methods[method](owner, tuple(arguments))
    finally:
        for fd in opened:
            os.close(fd)


def _read(door: Door, owner: Owner, method: str, values: tuple[Any, ...]) -> Answer | Later:
    """Get and GetAll; GDBus has checked that the name exists and may be read."""
    name = values[1] if method == "Get" else ""
    found = door.properties(owner)

    def pack(properties: Mapping[str, Any]) -> Answer:
        variants = pack_properties(door.interface, properties)
        if name:
            return Answer((GLib.Variant("(v)", (variants[name],)),))
        return Answer((GLib.Variant("(a{sv})", (variants,)),))

    if isinstance(found, Later):
        inner = found.convert
        return Later(found.future, lambda value: pack(inner(value)), found.release)
    return pack(found)


def pack_properties(interface: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Name → variant of the type that the XML gives."""
    signatures = contract.property_signatures(interface)
    return {name: GLib.Variant(signatures[name], value) for name, value in values.items()}


def vardict(**entries: tuple[str, Any]) -> dict[str, Any]:
    """An a{sv} from ``key=(signature, value)``."""
    return {
        key: GLib.Variant(kind, bus_text(value) if kind == "s" else value)
        for key, (kind, value) in entries.items()
    }


def bus_text(text: str) -> str:
    """Text that a D-Bus string can carry: no NUL, no lone surrogate (both become U+FFFD)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace("\0", "\ufffd")
