"""Who may manage, asked of polkit; the group answers where there is no polkit on the bus.

Asks without blocking: the answer, or the end of a short patience, comes in the main loop.
polkit that is there and does not answer is no yes. It prompts nobody for a password.
"""

from __future__ import annotations

import logging
import os
from concurrent.futures import Future
from typing import Any, Final

from gi.repository import Gio, GLib

from stoker.drivers.authority import GroupAuthority
from stoker.errors import Unavailable
from stoker.events.inference import Owner

ACTION: Final = "org.stoker.Agent1.manage"
TIMEOUT_MS: Final = 10_000
_NAME: Final = "org.freedesktop.PolicyKit1"
_PATH: Final = "/org/freedesktop/PolicyKit1/Authority"
_CHECK: Final = "((sa{sv})sa{ss}us)"
# What the bus says when nobody has polkit's name and nobody can be started for it.
_ABSENT: Final = (
    "org.freedesktop.DBus.Error.ServiceUnknown",
    "org.freedesktop.DBus.Error.NameHasNoOwner",
    "org.freedesktop.DBus.Error.Spawn.",
    "org.freedesktop.systemd1.",  # its unit is masked or cannot be started
)
_log = logging.getLogger(__name__)


class PolkitAuthority:
    """An Authority on ``connection`` (a Gio.DBusConnection), which callers are on too."""

    def __init__(
        self, connection: Any, group: GroupAuthority, timeout_ms: int = TIMEOUT_MS
    ) -> None:
        self._connection = connection
        self._group = group
        self._timeout_ms = timeout_ms
        self._trusted = (0, os.geteuid())

    def configure(self, group: str, gateway: str) -> None:
        """After a reload."""
        self._group.configure(group, gateway)

    def speaks_for_others(self, uid: int) -> bool:
        return self._group.speaks_for_others(uid)

    def may_manage(self, uid: int) -> bool:
        """By membership alone: it must be told at once (whose job may be seen)."""
        return self._group.may_manage(uid)

    def admit(self, owner: Owner) -> Future[bool]:
        """Main loop only. Root and our own user pass unasked, so that a broken polkit locks
        no administrator out. Fails with Unavailable when polkit cannot answer.
        """
        decision: Future[bool] = Future()
        if owner.uid in self._trusted:
            decision.set_result(True)
            return decision
        subject = ("system-bus-name", {"name": GLib.Variant("s", owner.unique_name)})
        question = GLib.Variant(_CHECK, (subject, ACTION, {}, 0, ""))
        self._connection.call(
            _NAME, _PATH, f"{_NAME}.Authority", "CheckAuthorization", question,
            GLib.VariantType("((bba{ss}))"), Gio.DBusCallFlags.NONE, self._timeout_ms, None,
            lambda connection, result: self._answered(connection, result, owner, decision),
        )  # fmt: skip
        return decision

    def _answered(self, connection: Any, result: Any, owner: Owner, decision: Future[bool]) -> None:
        try:
            ((authorized, _challenge, _details),) = connection.call_finish(result).unpack()
        except GLib.Error as error:
            name = Gio.DBusError.get_remote_error(error) or ""
            if name.startswith(_ABSENT):
                _log.info("no polkit on the bus: the group decides about user %d", owner.uid)
                decision.set_result(self._group.may_manage(owner.uid))
                return
            reason = error.message.removeprefix("GDBus.Error:")
            decision.set_exception(
                Unavailable(
                    f"cannot ask polkit whether user {owner.uid} may manage: {reason}",
                    hint="is polkit.service well, and org.stoker.Agent1.policy installed?",
                )
            )
            return
        decision.set_result(bool(authorized))
