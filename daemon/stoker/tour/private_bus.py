"""A D-Bus daemon of our own, for development, tests and benchmarks.

It writes a configuration into a temporary directory, starts dbus-daemon on it and takes
both away again. With ``policies`` it behaves as the system bus does for a service.
"""

from __future__ import annotations

import os
import pwd
import re
import select
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from xml.sax.saxutils import escape

from stoker.errors import Unavailable
from stoker.tour import children

_START_LIMIT_S = 10.0
_STOP_LIMIT_S = 3.0

_OPEN = """
  <policy context="default">
    <allow user="*"/>
    <allow own="*"/>
    <allow send_destination="*" eavesdrop="false"/>
    <allow receive_sender="*"/>
  </policy>
"""
# What /usr/share/dbus-1/system.conf grants before any service's own file.
_SYSTEM = """
  <policy context="default">
    <allow user="*"/>
    <deny own="*"/>
    <deny send_type="method_call"/>
    <allow send_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/>
    <allow send_requested_reply="true" send_type="error"/>
    <allow receive_type="method_call"/>
    <allow receive_type="method_return"/>
    <allow receive_type="error"/>
    <allow receive_type="signal"/>
    <allow send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus"/>
    <allow send_destination="org.freedesktop.DBus"
           send_interface="org.freedesktop.DBus.Introspectable"/>
    <allow send_destination="org.freedesktop.DBus"
           send_interface="org.freedesktop.DBus.Properties"/>
  </policy>
"""


class PrivateBus:
    """``with PrivateBus() as bus: bus.address``. Any local user may connect.

    Without ``policies`` everyone may do everything; with policy files (as shipped for the
    system bus) the rest is denied as there. ``owner`` replaces user "stoker" in them, by
    default with the user that runs this. Start it from the main thread: the daemon dies
    with the thread that started it, so that a killed test run leaves none behind.
    """

    def __init__(self, policies: Sequence[Path] = (), owner: str | None = None) -> None:
        self._policies = [policy.read_text(encoding="utf-8") for policy in policies]
        self._owner = owner or pwd.getpwuid(os.geteuid()).pw_name
        self._dir: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""
        self.pid = 0

    def start(self) -> PrivateBus:
        """Raises Unavailable if dbus-daemon is missing or does not come up."""
        program = shutil.which("dbus-daemon")
        if program is None:
            raise Unavailable(
                "cannot start a private bus: dbus-daemon is not installed",
                hint="apt-get install dbus",
            )
        self._dir = Path(tempfile.mkdtemp(prefix="stoker-bus-"))
        self._dir.chmod(0o755)  # other users reach the socket through it
        config = self._dir / "bus.conf"
        config.write_text(self._config(), encoding="utf-8")
        guard = shutil.which("setpriv")
        command = [guard, "--pdeathsig", "KILL", "--"] if guard else []
        command += [program, f"--config-file={config}", "--nofork", "--nopidfile"]
        reader, writer = os.pipe()
        try:
            with (self._dir / "log").open("wb") as log:
                self._process = subprocess.Popen(
                    [*command, f"--print-address={writer}"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(writer,),
                )
            os.close(writer)
            writer = -1
            self.address = self._read_address(reader)
        except BaseException:
            self.stop()
            raise
        finally:
            os.close(reader)
            if writer >= 0:
                os.close(writer)
        self.pid = self._process.pid
        return self

    def stop(self) -> None:
        """Ends the daemon and removes its files; safe to call twice."""
        process, self._process = self._process, None
        if process is not None:
            children.stop(process, _STOP_LIMIT_S)
        folder, self._dir = self._dir, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def __enter__(self) -> PrivateBus:
        return self.start()

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _config(self) -> str:
        listen = escape(f"unix:path={self._dir}/socket")
        rules = [_SYSTEM if self._policies else _OPEN]
        for policy in self._policies:
            found = re.search(r"<busconfig>(.*)</busconfig>", policy, re.DOTALL)
            rules.append(found.group(1) if found else "")
        text = "\n".join(rules).replace('user="stoker"', f'user="{escape(self._owner)}"')
        return (
            '<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN"\n'
            ' "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">\n'
            f"<busconfig>\n  <listen>{listen}</listen>\n  <auth>EXTERNAL</auth>\n"
            f"{text}\n</busconfig>\n"
        )

    def _read_address(self, reader: int) -> str:
        ready, _, _ = select.select([reader], [], [], _START_LIMIT_S)
        line = os.read(reader, 4096).decode().strip() if ready else ""
        if not line:
            assert self._dir is not None
            said = (self._dir / "log").read_text(errors="replace").strip()
            raise Unavailable(f"cannot start a private bus: {said or 'dbus-daemon said nothing'}")
        return line
