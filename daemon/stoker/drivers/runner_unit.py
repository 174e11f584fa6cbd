"""The runner as the packaged unit ``stoker-runner@N.service``: started through systemd.

We listen on ``runner-N.sock`` before the start; the unit connects and is known by its user
(SO_PEERCRED). It decides nothing: whether a dead runner comes back is the supervisor's business.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pwd
import select
import socket
import struct
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from stoker.drivers.framed_socket import FramedSocket
from stoker.drivers.systemd_units import SystemdUnits, UnitState
from stoker.errors import ModelUnavailable, StokerError
from stoker.events.inference import RunnerExit
from stoker.events.runner import Event, Request

USER: Final = "stoker-runner"
TEMPLATE: Final = "stoker-runner@{}.service"
_UNIT_FOLDERS: Final = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
_CGROUPS: Final = Path("/sys/fs/cgroup")
_WATCH_EVERY_S: Final = 0.1
_SETTLE_LIMIT_S: Final = 2.0  # systemd knows of an end some milliseconds after the kernel
_SETTLE_STEP_S: Final = 0.005
_CLD_EXITED: Final = 1
_log = logging.getLogger(__name__)


def installed() -> bool:
    """The unit's template is where systemd looks."""
    return any((Path(folder) / TEMPLATE.format("")).exists() for folder in _UNIT_FOLDERS)


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
    ) -> None:
        options = " ".join(("--engine", engine, *extra))
        self._environment = f"GOMP_SPINCOUNT={gomp_spincount}\nSTOKER_RUNNER_OPTIONS={options}\n"
        self._runtime_dir = runtime_dir
        self._systemd = systemd
        self._user = user
        self._generation = 0
        _remove(*runtime_dir.glob("runner-*.sock"), *runtime_dir.glob("runner-*.env"))

    def start(self) -> UnitRunner:
        number = self._next_number()
        path = self._runtime_dir / f"runner-{number}.sock"
        settings = path.with_suffix(".env")
        unit = TEMPLATE.format(number)
        try:
            owner = pwd.getpwnam(self._user)
            listener = _listen(path, owner.pw_gid)
        except (OSError, KeyError) as error:
            raise ModelUnavailable(f"cannot start runner: {error}") from error
        try:
            settings.write_text(self._environment)
            self._systemd.start(unit)
        except (OSError, StokerError) as error:
            listener.close()
            _remove(path, settings)
            hint = error.hint if isinstance(error, StokerError) else ""
            raise ModelUnavailable(f"cannot start runner: {error}", hint=hint) from error
        return UnitRunner(unit, listener, (path, settings), owner.pw_uid, self._systemd)

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
    """See ``ports.runner.RunnerProcess``. Two epolls stand for what is not there yet."""

    def __init__(
        self,
        unit: str,
        listener: socket.socket,
        files: tuple[Path, ...],
        uid: int,
        systemd: SystemdUnits,
    ) -> None:
        self._unit, self._files, self._uid, self._systemd = unit, files, uid, systemd
        self._listener: socket.socket | None = listener
        self._link = FramedSocket()
        self._ready = select.epoll()
        self._ready.register(listener, select.EPOLLIN)
        self._end = select.epoll()
        self._gone = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._end.register(self._gone, select.EPOLLIN)
        self._pidfd = -1
        self._ended_s = 0.0
        self._exit: RunnerExit | None = None
        self._control_group = ""
        self.pid = 0
        self._watching = threading.Event()
        threading.Thread(target=self._watch_start, name=f"start-{unit}", daemon=True).start()

    def fileno(self) -> int:
        return self._ready.fileno()

    def exit_fileno(self) -> int:
        return self._end.fileno()

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
        if self._exit is None and self._end.poll(0):
            self._exit = self._ask_how()
        return self._exit

    def signal(self, signum: int) -> None:
        """Before it connected there may be no process yet: then the unit is stopped."""
        if self._exit is not None:
            return
        try:
            if self.pid:
                self._systemd.kill(self._unit, signum)
            else:
                self._systemd.stop(self._unit)
        except StokerError as error:
            _log.warning("%s", error.message)

    def memory_bytes(self) -> int:
        """Anonymous and mapped memory of its cgroup: /proc of another user tells less."""
        if not self._control_group:
            with contextlib.suppress(StokerError):
                state = self._systemd.state(self._unit)
                self._control_group = state.control_group if state else ""
        file = _CGROUPS / self._control_group.lstrip("/") / "memory.stat"
        with contextlib.suppress(OSError, ValueError):
            rows = (row.partition(" ") for row in file.read_text().splitlines())
            return sum(int(value) for key, _, value in rows if key in ("anon", "file_mapped"))
        return 0

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._link.close()
        _remove(*self._files[:1])

    def release(self) -> None:
        self._watching.set()
        _remove(*self._files)
        self._systemd.reset_failed(self._unit)
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        self._end.close()
        self._ready.close()
        # the eventfd stays until nobody can write to it: see _watch_start

    def _accept(self, listener: socket.socket) -> None:
        try:
            link, _ = listener.accept()
        except OSError:
            return
        pid, uid, _gid = struct.unpack("3i", link.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
        ))  # fmt: skip
        if uid != self._uid:
            _log.warning("user %d knocked at the socket of %s: refused", uid, self._unit)
            link.close()
            return
        self.pid = pid
        with contextlib.suppress(OSError):  # it has ended already: the watcher will tell
            self._pidfd = os.pidfd_open(pid)
            self._end.register(self._pidfd, select.EPOLLIN)
            self._watching.set()
        self._ready.unregister(listener)
        listener.close()
        self._listener = None
        self._link.attach(link)
        self._ready.register(link, select.EPOLLIN)
        _remove(*self._files[:1])
        self.flush()

    def _rearm(self) -> None:
        """An epoll is never writable, so room in the socket shows as something to read."""
        if self._link.fileno() >= 0:
            waiting = 0 if self._link.empty else select.EPOLLOUT
            self._ready.modify(self._link.fileno(), select.EPOLLIN | waiting)

    def _ask_how(self) -> RunnerExit | None:
        """None while systemd has not seen the end yet."""
        now_s = time.monotonic()
        self._ended_s = self._ended_s or now_s
        try:
            state = self._systemd.state(self._unit)
        except StokerError as error:
            _log.warning("%s", error.message)
            return RunnerExit(status=255)
        if state is None:
            return RunnerExit(status=0)
        if not state.ended and now_s - self._ended_s < _SETTLE_LIMIT_S:
            time.sleep(_SETTLE_STEP_S)
            return None
        return self._how(state)

    def _how(self, state: UnitState) -> RunnerExit:
        if state.result not in ("success", "exit-code", "signal", "core-dump"):
            _log.warning("%s ended: %s", self._unit, state.result)
        oom = state.result == "oom-kill"
        if state.code > _CLD_EXITED:
            return RunnerExit(signal=state.status, oom_killed=oom)
        never_ran = state.code == 0 and state.result != "success"
        return RunnerExit(status=255 if never_ran else state.status, oom_killed=oom)

    def _watch_start(self) -> None:
        """Thread: until it connects, only systemd knows whether the start failed."""
        try:
            while not self._watching.wait(_WATCH_EVERY_S):
                with contextlib.suppress(StokerError):
                    state = self._systemd.state(self._unit)
                    if state is None or state.ended:
                        os.eventfd_write(self._gone, 1)
                        self._watching.wait()
        finally:
            os.close(self._gone)


def _listen(path: Path, group: int) -> socket.socket:
    """Only the runner's group may connect."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        os.chown(path, -1, group)
        path.chmod(0o660)
        listener.listen(1)
        listener.setblocking(False)
    except OSError:
        listener.close()
        _remove(path)
        raise
    return listener


def _remove(*paths: Path) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink()
