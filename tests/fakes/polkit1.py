"""polkit's authority as stokerd meets it, as a process: ``python -m tests.fakes.polkit1 ADDRESS``.

``--allow UID`` lets the bus clients of that user do everything; nobody else. As the real one it
refuses to be asked of actions it does not know and of clients that are not on the bus.
``--silent`` never answers. Each question is a line on stdout: action, UID, flags.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from gi.repository import Gio, GLib

from stoker.drivers.polkit import ACTION

_NAME = "org.freedesktop.PolicyKit1"
_FAILED = "org.freedesktop.PolicyKit1.Error.Failed"
_XML = """<node><interface name="org.freedesktop.PolicyKit1.Authority">
<method name="CheckAuthorization"><arg type="(sa{sv})" direction="in"/>
<arg type="s" direction="in"/><arg type="a{ss}" direction="in"/><arg type="u" direction="in"/>
<arg type="s" direction="in"/><arg type="(bba{ss})" direction="out"/></method>
</interface></node>"""


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _uid_of(con: Any, name: str) -> int:
    reply = con.call_sync(
        "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus",
        "GetConnectionUnixUser", GLib.Variant("(s)", (name,)), None, 0, 2000, None,
    )  # fmt: skip
    return int(reply.unpack()[0])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--allow", type=int, default=-1)
    parser.add_argument("--silent", action="store_true")
    options = parser.parse_args()
    flags = Gio.DBusConnectionFlags
    con = Gio.DBusConnection.new_for_address_sync(
        options.address, flags.AUTHENTICATION_CLIENT | flags.MESSAGE_BUS_CONNECTION, None, None
    )

    def called(_c: Any, _s: str, _p: str, _i: str, _m: str, body: Any, invocation: Any) -> None:
        (kind, facts), action, _details, asked, _cancel = body.unpack()
        if options.silent:
            return
        if kind != "system-bus-name" or action != ACTION:
            invocation.return_dbus_error(_FAILED, f"Action {action} is not registered")
            return
        try:
            uid = _uid_of(con, facts["name"])
        except GLib.Error:
            invocation.return_dbus_error(_FAILED, f"{facts['name']} is not on the bus")
            return
        _say(f"asked {action} {uid} {asked}")
        answer: tuple[bool, bool, dict[str, str]] = (
            uid == options.allow, uid != options.allow, {},
        )  # fmt: skip
        invocation.return_value(GLib.Variant("((bba{ss}))", (answer,)))

    interface = Gio.DBusNodeInfo.new_for_xml(_XML).interfaces[0]
    con.register_object(f"/{_NAME.replace('.', '/')}/Authority", interface, called, None, None)
    Gio.bus_own_name_on_connection(con, _NAME, 0, lambda *_: _say("ready"), None)
    GLib.MainLoop().run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
