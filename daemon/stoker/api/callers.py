"""Who calls: UID and PID of a unique name as the bus says them, and when it leaves.

Asks the bus once per unique name, without blocking; calls that come meanwhile wait in
order. Unique names are never used twice, so an answer holds until the name vanishes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from gi.repository import Gio, GLib

from stoker.errors import NotAuthorized, StokerError, Unavailable
from stoker.events.inference import Owner

log = logging.getLogger(__name__)

Then = Callable[[Owner | StokerError], None]

_BUS: Final = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")
# One rule for every caller (the system bus allows 512 rules a connection, one per caller
# could pass that). arg2='' = only names that lost their owner.
_RULE: Final = (
    "type='signal',sender='org.freedesktop.DBus',interface='org.freedesktop.DBus',"
    "member='NameOwnerChanged',path='/org/freedesktop/DBus',arg2=''"
)
_TIMEOUT_MS: Final = 5000


class Callers:
    """Main loop only."""

    def __init__(self, con: Any, vanished: Callable[[str], None]) -> None:
        """Adds a match rule; blocks on the bus, so create it before the main loop serves."""
        self._con = con
        self._vanished = vanished
        self._known: dict[str, Owner] = {}
        self._waiting: dict[str, list[Then]] = {}
        self._subscription = con.signal_subscribe(
            _BUS[0], _BUS[2], "NameOwnerChanged", _BUS[1], None,
            Gio.DBusSignalFlags.NO_MATCH_RULE, self._on_owner_changed,
        )  # fmt: skip
        try:
            con.call_sync(
                *_BUS, "AddMatch", GLib.Variant("(s)", (_RULE,)), None, 0, _TIMEOUT_MS, None
            )
        except GLib.Error as error:
            raise Unavailable(f"cannot watch callers: {error.message}") from error

    def identify(self, name: str, then: Then) -> None:
        """Calls ``then`` with the owner, at once if known, or with a typed error."""
        owner = self._known.get(name)
        if owner is not None:
            then(owner)
        elif name in self._waiting:
            self._waiting[name].append(then)
        else:
            self._waiting[name] = [then]
            self._con.call(
                *_BUS, "GetConnectionCredentials", GLib.Variant("(s)", (name,)),
                None, 0, _TIMEOUT_MS, None, self._on_credentials, name,
            )  # fmt: skip

    def close(self) -> None:
        self._con.signal_unsubscribe(self._subscription)
        self._known.clear()
        self._waiting.clear()

    def _on_credentials(self, con: Any, result: Any, name: str) -> None:
        found: Owner | StokerError
        try:
            facts = con.call_finish(result).unpack()[0]
        except GLib.Error as error:
            found = Unavailable(f"cannot serve {name}: {error.message}")
        else:
            found = _owner(name, facts)
        waiting = self._waiting.pop(name, None)
        if waiting is None:
            return  # it vanished meanwhile: caching it would keep it for ever
        if isinstance(found, Owner):
            self._known[name] = found
        for then in waiting:
            then(found)

    def _on_owner_changed(self, _c: Any, _s: str, _p: str, _i: str, _m: str, args: Any) -> None:
        name, _old, new = args.unpack()
        if new or not name.startswith(":"):
            return
        known = self._known.pop(name, None)
        waiting = self._waiting.pop(name, ())
        if known is not None:
            self._vanished(name)
        for then in waiting:
            then(Unavailable(f"cannot serve {name}: it left the bus"))


def _owner(name: str, facts: dict[str, Any]) -> Owner | StokerError:
    uid = facts.get("UnixUserID")
    if uid is None:
        return NotAuthorized(f"cannot serve {name}: the bus does not know its user")
    return Owner(name, int(uid), int(facts.get("ProcessID", 0)))
