"""The runner as the packaged unit ``stoker-runner@N.service``: started through systemd.

We listen on ``runner-N.sock`` before the start; the unit connects and is known by its user
(SO_PEERCRED). It decides nothing: whether a dead runner comes back is the supervisor's business.
"""

from __future__ import annotations

import contextlib
import pwd
import re
import select
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from stoker.drivers import unit_socket
from stoker.drivers.framed_socket import FramedSocket
from stoker.drivers.runner_child import HUGE_PAGES
from stoker.drivers.systemd_units import SystemdUnits
from stoker.drivers.unit_watch import UnitWatch
from stoker.errors import ModelUnavailable
from stoker.events.inference import RunnerExit
from stoker.events.runner import Event, Request

USER: Final = "stoker-runner"
TEMPLATE: Final = "stoker-runner@{}.service"
_UNIT_FOLDERS: Final = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
_CGROUPS: Final = Path("/sys/fs/cgroup")


def installed(template: str = TEMPLATE) -> bool:
    """The unit's template is where systemd looks."""
    return any((Path(folder) / template.format("")).exists() for folder in _UNIT_FOLDERS)


class UnitLauncher:
    """See ``ports.runner.RunnerLauncher``. Generations count on across lives of stokerd."""

    def __init__(
        self,
        engine: str,
        *,
        runtime_dir: Path,
        gomp_spincount: int,
        systemd: SystemdUnits,
        extra: Sequence[str] = (),
        user: str = USER,
        huge_pages: bool = False,
    ) -> None:
        options = " ".join(("--engine", engine, *extra))
        words = {"GOMP_SPINCOUNT": str(gomp_spincount), "STOKER_RUNNER_OPTIONS": options}
        words |= HUGE_PAGES if huge_pages else {}
        self._environment = "".join(f"{name}={value}\n" for name, value in words.items())
        self._runtime_dir = runtime_dir
        self._systemd = systemd
        self._user = user
        self._generation = 0
        self._first = True
        unit_socket.remove(*runtime_dir.glob("runner-*.sock"), *runtime_dir.glob("runner-*.env"))

    def start(self, libraries: str = "") -> UnitRunner:
        number = self._next_number()
        path = self._runtime_dir / f"runner-{number}.sock"
        settings = path.with_suffix(".env")
        unit = TEMPLATE.format(number)
        try:
            owner = pwd.getpwnam(self._user)
            listener = unit_socket.listen(path, owner.pw_gid)
        except (OSError, KeyError) as error:
            raise ModelUnavailable(f"cannot start runner: {error}") from error
        try:
            settings.write_text(self._environment + _libraries(libraries))
        except OSError as error:
            listener.close()
            unit_socket.remove(path, settings)
            raise ModelUnavailable(f"cannot start runner: {error}") from error
        watch = UnitWatch(unit, self._systemd, self._left(number))
        return UnitRunner(unit, listener, (path, settings), owner.pw_uid, watch)

    def _left(self, number: int) -> tuple[str, ...]:
        """Once: what a stokerd before us may have left failed, as it ended before they did."""
        first, self._first = self._first, False
        return tuple(TEMPLATE.format(old) for old in (number - 2, number - 1) if first and old > 0)

    def _next_number(self) -> int:
        """A number never used since boot: an old runner may still be on its way out."""
        file = self._runtime_dir / "generation"
        with contextlib.suppress(OSError, ValueError):
            self._generation = max(self._generation, int(file.read_text()))
        self._generation += 1
        with contextlib.suppress(OSError):
            file.write_text(f"{self._generation}\n")
        return self._generation


class UnitRunner:
    """See ``ports.runner.RunnerProcess``. An epoll stands for the socket that is not there yet;
    what systemd must be asked is ``watch``'s.
    """

    def __init__(
        self,
        unit: str,
        listener: socket.socket,
        files: tuple[Path, ...],
        uid: int,
        watch: UnitWatch,
    ) -> None:
        self._unit, self._files, self._uid, self._watch = unit, files, uid, watch
        self._listener: socket.socket | None = listener
        self._link = FramedSocket()
        self._ready = select.epoll()
        self._ready.register(listener, select.EPOLLIN)
        self.pid = 0

    def fileno(self) -> int:
        return self._ready.fileno()

    def exit_fileno(self) -> int:
        return self._watch.fileno()

    def send(self, request: Request) -> None:
        self._link.send(request)
        self._rearm()

    def flush(self) -> bool:
        done = self._link.flush()
        self._rearm()
        return done

    def receive(self) -> list[Event] | None:
        if self._listener is not None:
            self._accept(self._listener)
            return []
        self.flush()
        return self._link.receive()

    def exited(self) -> RunnerExit | None:
        return self._watch.exit

    def signal(self, signum: int) -> None:
        if self._watch.exit is None:
            self._watch.signal(signum, running=bool(self.pid))

    def memory_bytes(self) -> int:
        """Anonymous and mapped memory of its cgroup: /proc of another user tells less."""
        group = self._watch.control_group
        if not group:
            return 0
        with contextlib.suppress(OSError, ValueError):
            text = (_CGROUPS / group.lstrip("/") / "memory.stat").read_text()
            rows = (row.partition(" ") for row in text.splitlines())
            return sum(int(value) for key, _, value in rows if key in ("anon", "file_mapped"))
        return 0

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._link.close()
        unit_socket.remove(*self._files[:1])

    def release(self) -> None:
        unit_socket.remove(*self._files)
        self._watch.release()
        self._ready.close()

    def _accept(self, listener: socket.socket) -> None:
        found = unit_socket.accept(listener, self._uid, self._unit)
        if found is None:
            return
        link, pid = found
        self.pid = pid
        self._watch.connected(pid)
        self._ready.unregister(listener)
        listener.close()
        self._listener = None
        self._link.attach(link)
        self._ready.register(link, select.EPOLLIN)
        unit_socket.remove(*self._files[:1])
        self.flush()

    def _rearm(self) -> None:
        """An epoll is never writable, so room in the socket shows as something to read."""
        if self._link.fileno() >= 0:
            waiting = 0 if self._link.empty else select.EPOLLOUT
            self._ready.modify(self._link.fileno(), select.EPOLLIN | waiting)


def _libraries(folder: str) -> str:
    """A line of an environment file: quoted, since it may hold what a shell would see."""
    if not folder:
        return ""
    if any(not character.isprintable() for character in folder):
        raise ModelUnavailable(f"cannot start runner: {folder!r} is no name of a folder")
    quoted = re.sub(r'(["\\$`])', r"\\\1", folder)
    return f'STOKER_RUNNER_LIBRARIES="{quoted}"\n'
