"""One life of a unit as systemd knows it, on a thread of its own: no loop waits for systemd.

Starts the unit, watches whether it comes up, passes signals on and says how it ended. It
decides nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import select
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from stoker.drivers.systemd_units import SystemdUnits, UnitState
from stoker.errors import StokerError
from stoker.events.inference import RunnerExit

_WATCH_EVERY_S: Final = 0.1
_SETTLE_LIMIT_S: Final = 2.0  # systemd knows of an end some milliseconds after the kernel
_SETTLE_STEP_S: Final = 0.005
_CLD_EXITED: Final = 1
_log = logging.getLogger(__name__)


class UnitWatch:
    """``fileno`` is readable once ``exit`` is known. ``left``: units that nobody watches."""

    def __init__(self, unit: str, systemd: SystemdUnits, left: Sequence[str] = ()) -> None:
        self._unit, self._systemd, self._left = unit, systemd, left
        self._gone = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._news = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.Lock()  # of the two descriptors' life
        self._released = self._ended = False
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._pidfd = -1
        self.exit: RunnerExit | None = None
        self.control_group = ""
        threading.Thread(target=self._run, name=f"watch-{unit}", daemon=True).start()

    def fileno(self) -> int:
        return self._gone

    def connected(self, pid: int) -> None:
        """It is there; from now on its end is the kernel's to tell."""
        with contextlib.suppress(OSError):  # it has ended already: systemd will tell
            self._pidfd = os.pidfd_open(pid)
        self._wake()

    def signal(self, signum: int, *, running: bool) -> None:
        """Before it connected there may be no process yet: then the unit is stopped."""
        systemd, unit = self._systemd, self._unit
        if running:
            self._orders.put(lambda: systemd.kill(unit, signum))
        else:
            self._orders.put(lambda: systemd.stop(unit))
        self._wake()

    def release(self) -> None:
        """After the exit was seen."""
        with self._lock:
            self._released = True
            os.close(self._gone)
            if self._ended:
                os.close(self._news)

    def _wake(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            if not self._ended:
                os.eventfd_write(self._news, 1)

    def _run(self) -> None:
        for unit in self._left:
            self._systemd.reset_failed(unit)
        try:
            how = self._life()
        except StokerError as error:
            hint = f" ({error.hint})" if error.hint else ""
            how = RunnerExit(unstarted=f"cannot start runner: {error.message}{hint}")
        except Exception:  # whatever it is, the link must hear of an end
            _log.exception("fault while watching %s", self._unit)
            how = RunnerExit(status=255)
        self._systemd.reset_failed(self._unit)
        with self._lock:
            self.exit, self._ended = how, True
            if self._pidfd >= 0:
                os.close(self._pidfd)
            if self._released:
                os.close(self._news)
            else:
                os.eventfd_write(self._gone, 1)

    def _life(self) -> RunnerExit:
        self._systemd.start(self._unit)
        poll = select.poll()
        poll.register(self._news, select.POLLIN)
        watching = -1
        while True:
            connected = watching >= 0
            ready = {fd for fd, _ in poll.poll(None if connected else _WATCH_EVERY_S * 1000)}
            if self._news in ready:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._news)
                self._obey()
            if not connected and self._pidfd >= 0:
                watching = self._pidfd
                poll.register(watching, select.POLLIN)
                self._note_group()
            if connected and watching in ready:
                return self._ending()
            if not connected and not ready and self._over():
                return self._ending()

    def _obey(self) -> None:
        while not self._orders.empty():
            try:
                self._orders.get_nowait()()
            except StokerError as error:
                _log.warning("%s", error.message)

    def _over(self) -> bool:
        """Only systemd knows whether a start that never connected has failed."""
        try:
            state = self._systemd.state(self._unit)
        except StokerError:
            return False
        return state is None or state.ended

    def _note_group(self) -> None:
        with contextlib.suppress(StokerError):
            state = self._systemd.state(self._unit)
            self.control_group = state.control_group if state else ""

    def _ending(self) -> RunnerExit:
        until_s = time.monotonic() + _SETTLE_LIMIT_S
        while True:
            try:
                state = self._systemd.state(self._unit)
            except StokerError as error:
                _log.warning("%s", error.message)
                return RunnerExit(status=255)
            if state is None:
                return RunnerExit(status=0)
            if state.ended or time.monotonic() >= until_s:
                return self._how(state)
            time.sleep(_SETTLE_STEP_S)

    def _how(self, state: UnitState) -> RunnerExit:
        if state.result not in ("success", "exit-code", "signal", "core-dump"):
            _log.warning("%s ended: %s", self._unit, state.result)
        oom = state.result == "oom-kill"
        if state.code > _CLD_EXITED:
            return RunnerExit(signal=state.status, oom_killed=oom)
        never_ran = state.code == 0 and state.result != "success"
        return RunnerExit(status=255 if never_ran else state.status, oom_killed=oom)
