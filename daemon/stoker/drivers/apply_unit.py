"""Applies deltas in the packaged unit ``stoker-apply@N.service``, which may open no file at all.

We listen on ``apply-N.sock``, start the unit, know it by its user (SO_PEERCRED) and pass it the
descriptors. Nothing it made is used before systemd says that every process of it is gone.
"""

from __future__ import annotations

import contextlib
import pwd
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stoker.drivers import runner_unit, unit_socket
from stoker.drivers.systemd_units import SystemdUnits, UnitState
from stoker.errors import StokerError
from stoker_ota.core import apply_talk
from stoker_ota.core.apply_talk import Ending, Job, Said
from stoker_ota.drivers import apply_link
from stoker_ota.drivers.apply_link import LOOK_S, Files, Patience
from stoker_ota.errors import Cancelled, InternalError, Unavailable
from stoker_ota.ports.files import Progress

USER: Final = "stoker-apply"
TEMPLATE: Final = "stoker-apply@{}.service"
_LOOK_S: Final = 0.05
_CLD_EXITED: Final = 1


def installed() -> bool:
    return runner_unit.installed(TEMPLATE)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """``start_s``: to its connection; ``grace_s``: to end by itself; ``end_s``: when killed."""

    start_s: float = 90.0
    grace_s: float = 3.0
    end_s: float = 60.0


class UnitPatcher:
    """See ``stoker_ota.ports.updates.Patcher``. One thread."""

    def __init__(
        self,
        root: Path,
        *,
        runtime_dir: Path,
        systemd: SystemdUnits,
        cancelled: Callable[[], bool] = lambda: False,
        user: str = USER,
        patience: Patience | None = None,
        deadlines: Deadlines | None = None,
    ) -> None:
        self._root, self._runtime_dir, self._systemd = root, runtime_dir, systemd
        self._cancelled, self._user = cancelled, user
        self._patience, self._deadlines = patience or Patience(), deadlines or Deadlines()
        unit_socket.remove(*runtime_dir.glob("apply-*.sock"))

    def apply(
        self, delta: str, index_sha256: str, source: str, part: str, size: int, progress: Progress
    ) -> None:
        job = Job(bytes.fromhex(index_sha256), size)
        with apply_link.opened(self._root, delta, source, part, size) as files:
            said, how = self._run(job, files, progress)
            apply_talk.judge(said, how)

    def _run(self, job: Job, files: Files, progress: Progress) -> tuple[Said, Ending]:
        number = int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000)  # never twice since boot
        unit, path = TEMPLATE.format(number), self._runtime_dir / f"apply-{number}.sock"
        given, grace_s = False, 0.0
        try:
            with self._listener(path) as listener, self._connected(unit, listener) as link:
                given = True
                apply_link.send(link, job, files)
                said = apply_link.follow(link, files, progress, self._cancelled, self._patience)
                grace_s = self._deadlines.grace_s
        finally:
            unit_socket.remove(path)
            how = self._ended(unit, grace_s) if given else self._called_off(unit)
            if how is None:  # it may write on: what it can reach must never be used
                files.part.drop()
        if how is None:
            raise InternalError(f"cannot apply the delta: {unit} does not end")
        return said, how

    def _listener(self, path: Path) -> socket.socket:
        try:
            return unit_socket.listen(path, pwd.getpwnam(self._user).pw_gid)
        except (OSError, KeyError) as error:
            raise Unavailable(f"cannot apply the delta: {error}") from error

    def _connected(self, unit: str, listener: socket.socket) -> socket.socket:
        """Unavailable where it does not come: it is tried again."""
        uid = pwd.getpwnam(self._user).pw_uid
        until_s = time.monotonic() + self._deadlines.start_s
        listener.settimeout(LOOK_S)
        try:
            self._systemd.start(unit)
            while time.monotonic() < until_s:
                if self._cancelled():
                    raise Cancelled("cannot go on applying the delta: it was cancelled")
                found = unit_socket.accept(listener, uid, unit)
                if found is not None:
                    return found[0]
                state = self._systemd.state(unit)
                if state is None or state.ended:
                    result = state.result if state is not None else "it ended at once"
                    raise Unavailable(
                        f"cannot apply the delta: {unit} did not start: {result}",
                        hint=f"see journalctl -u {unit}",
                    )
        except StokerError as error:
            raise Unavailable(
                f"cannot apply the delta: {error.message}", hint=error.hint
            ) from error
        raise Unavailable(f"cannot apply the delta: {unit} did not connect")

    def _called_off(self, unit: str) -> Ending:
        """It was given nothing, and the socket is gone: it can only end."""
        with contextlib.suppress(StokerError):
            self._systemd.stop(unit)
            self._systemd.reset_failed(unit)
        return Ending()

    def _ended(self, unit: str, grace_s: float) -> Ending | None:
        """How it ended, once nothing of it runs; None where that cannot be made sure."""
        began_s, killed = time.monotonic(), False
        while time.monotonic() - began_s < self._deadlines.end_s:
            with contextlib.suppress(StokerError):
                state = self._systemd.state(unit)
                if state is None or state.ended:
                    self._systemd.reset_failed(unit)
                    return _ending(state)
                if not killed and time.monotonic() - began_s >= grace_s:
                    self._systemd.kill(unit, signal.SIGKILL)
                    self._systemd.stop(unit)  # a start that is still queued goes, too
                    killed = True
            time.sleep(_LOOK_S)
        return None


def _ending(state: UnitState | None) -> Ending:
    if state is None:
        return Ending()
    died = state.code > _CLD_EXITED
    return Ending(
        0 if died else state.status,
        signum=state.status if died else 0,
        out_of_memory=state.result == "oom-kill",
        too_long=state.result == "timeout",
    )
