"""systemd's manager as stokerd meets it, as a process: ``python -m tests.fakes.systemd1 ADDRESS``.

Knows stoker-runner@N and stoker-apply@N only; its processes are real echo runners and real
appliers of deltas (or ``--apply MODULE``) that connect to ``--sockets``/runner-N.sock. A unit
that ended well is forgotten, one that failed is kept until it is reset, as with systemd.
``--deny`` refuses as polkit does; ``--broken`` cannot execute; ``--oom`` and ``--watchdog``
say so of every unit that was killed; ``--immortal`` kills nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from gi.repository import Gio, GLib

_XML = """<node>
<interface name="org.freedesktop.systemd1.Manager">
<method name="StartUnit"><arg type="s" direction="in"/><arg type="s" direction="in"/>
<arg type="o" direction="out"/></method>
<method name="StopUnit"><arg type="s" direction="in"/><arg type="s" direction="in"/>
<arg type="o" direction="out"/></method>
<method name="KillUnit"><arg type="s" direction="in"/><arg type="s" direction="in"/>
<arg type="i" direction="in"/></method>
<method name="GetUnit"><arg type="s" direction="in"/><arg type="o" direction="out"/></method>
<method name="ResetFailedUnit"><arg type="s" direction="in"/></method>
<method name="SetUnitProperties"><arg type="s" direction="in"/><arg type="b" direction="in"/>
<arg type="a(sv)" direction="in"/></method>
</interface></node>"""
_UNIT_XML = """<node><interface name="org.freedesktop.systemd1.Unit">
<property name="ActiveState" type="s" access="read"/>
<property name="Job" type="(uo)" access="read"/></interface>
<interface name="org.freedesktop.systemd1.Service">
<property name="Result" type="s" access="read"/>
<property name="ExecMainCode" type="i" access="read"/>
<property name="ExecMainStatus" type="i" access="read"/>
<property name="ControlGroup" type="s" access="read"/></interface></node>"""
_ERROR = "org.freedesktop.systemd1.NoSuchUnit"
_DENIED = "org.freedesktop.DBus.Error.AccessDenied"


class Manager:
    def __init__(self, con: Any, options: argparse.Namespace) -> None:
        self.con, self.options = con, options
        self.units: dict[str, tuple[subprocess.Popen[bytes] | None, list[int]]] = {}
        node = Gio.DBusNodeInfo.new_for_xml(_XML)
        con.register_object(
            "/org/freedesktop/systemd1", node.interfaces[0], self.called, None, None
        )

    def called(
        self, _c: Any, _s: str, _p: str, _i: str, method: str, body: Any, invocation: Any
    ) -> None:
        name, *rest = body.unpack()
        if self.options.deny and method != "GetUnit":
            invocation.return_dbus_error(_DENIED, "Access denied")
        elif method == "StartUnit":
            self.start(name)
            invocation.return_value(GLib.Variant("(o)", ("/job/1",)))
        elif method == "SetUnitProperties":
            sys.stdout.write(f"set {name} {rest!r}\n")
            sys.stdout.flush()
            invocation.return_value(None)
        elif not self.known(name):
            invocation.return_dbus_error(_ERROR, f"Unit {name} not loaded.")
        elif method == "GetUnit":
            invocation.return_value(GLib.Variant("(o)", (_path(name),)))
        elif method == "ResetFailedUnit":
            self.forget(name)
            invocation.return_value(None)
        else:
            process = self.units[name][0]
            if process is not None and process.poll() is None and not self.options.immortal:
                process.send_signal(rest[1] if method == "KillUnit" else 15)
            job = GLib.Variant("(o)", ("/job/2",))
            invocation.return_value(job if method == "StopUnit" else None)

    def start(self, name: str) -> None:
        found = re.fullmatch(r"stoker-(runner|apply)@(\d+)\.service", name)
        assert found, name
        base = Path(self.options.sockets) / f"{found[1]}-{found[2]}"
        process = None
        if self.options.broken:
            pass
        elif found[1] == "apply":
            process = subprocess.Popen(
                [sys.executable, "-m", self.options.apply, "--connect", f"{base}.sock"]
            )
        else:
            settings = dict(
                row.split("=", 1) for row in base.with_suffix(".env").read_text().splitlines()
            )
            words = settings.pop("STOKER_RUNNER_OPTIONS").split()
            process = subprocess.Popen(
                [sys.executable, "-m", "stoker.runner", "--connect", f"{base}.sock", *words],
                env={**os.environ, **settings},
            )
        ids = []
        for interface in Gio.DBusNodeInfo.new_for_xml(_UNIT_XML).interfaces:
            ids.append(self.con.register_object(_path(name), interface, None, self.read, None))
        self.units[name] = (process, ids)

    def read(self, _c: Any, _s: str, path: str, _i: str, key: str) -> Any:
        process = next(self.units[name][0] for name in self.units if _path(name) == path)
        code = None if process is None else process.poll()
        died = process is not None and code is not None and code < 0
        result = "oom-kill" if self.options.oom else "watchdog" if self.options.watchdog else ""
        facts = {
            "ActiveState": ("s", "active" if process and code is None else "failed"),
            "Job": ("(uo)", (0, "/")),
            "Result": ("s", result or ("signal" if died else "exit-code")),
            "ExecMainCode": ("i", 2 if died else 1),
            "ExecMainStatus": ("i", 203 if process is None else abs(code or 0)),
            "ControlGroup": ("s", "/nowhere"),
        }
        return GLib.Variant(*facts[key])

    def known(self, name: str) -> bool:
        if name not in self.units:
            return False
        process = self.units[name][0]
        if process is not None and process.poll() == 0:
            self.forget(name)
        return name in self.units

    def forget(self, name: str) -> None:
        for registration in self.units.pop(name)[1]:
            self.con.unregister_object(registration)


def _path(name: str) -> str:
    return "/unit/" + re.sub(r"[^A-Za-z0-9]", "_", name)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--sockets", default="/nonexistent")
    parser.add_argument("--apply", default="stoker_ota.apply")
    for flag in ("deny", "broken", "oom", "watchdog", "immortal"):
        parser.add_argument(f"--{flag}", action="store_true")
    options = parser.parse_args()
    flags = Gio.DBusConnectionFlags
    con = Gio.DBusConnection.new_for_address_sync(
        options.address, flags.AUTHENTICATION_CLIENT | flags.MESSAGE_BUS_CONNECTION, None, None
    )
    manager = Manager(con, options)

    def owned(*_: object) -> None:
        sys.stdout.write("ready\n")
        sys.stdout.flush()

    Gio.bus_own_name_on_connection(con, "org.freedesktop.systemd1", 0, owned, None)
    GLib.MainLoop().run()
    return len(manager.units)


if __name__ == "__main__":
    sys.exit(main())
