"""The agent as a whole: reload, uptime, and whether its loops still come round.

The watchdog is fed only on evidence: every loop that reports here must have turned
within its limit, else systemd is left to restart us.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from stoker.core.realtime import judge
from stoker.errors import StokerError
from stoker.events.realtime import RtFacts, RtView
from stoker.ports.doors import CpuShare, InferenceSnapshot
from stoker.ports.system import Clock, Notifier
from stoker.units import Seconds

_log = logging.getLogger(__name__)
STALE_AFTER_S = Seconds(10.0)

Turn = Callable[[], Seconds]
"""When a loop last came round (monotonic)."""


class AgentService:
    """See ``ports.doors.AgentDoor``; lives on the main loop's thread."""

    def __init__(
        self,
        *,
        clock: Clock,
        notifier: Notifier,
        turns: Mapping[str, Turn],
        apply: Callable[[], tuple[str, ...]],
        cpu_share: Callable[[], CpuShare] = CpuShare,
        realtime: Callable[[int], RtFacts] = lambda _pid: RtFacts(),
    ) -> None:
        self._clock, self._notifier = clock, notifier
        self._turns = turns
        self._apply = apply
        self._cpu_share = cpu_share
        self._realtime = realtime
        self._started_s = clock.monotonic_s()
        self._stale: tuple[str, ...] = ()
        self._said = ""

    def uptime_s(self) -> float:
        return self._clock.monotonic_s() - self._started_s

    def cpu_share(self) -> CpuShare:
        return self._cpu_share()

    def realtime(self, runner_pid: int) -> RtView:
        return judge(self._realtime(runner_pid))

    def reload(self) -> Future[tuple[str, ...]]:
        """Read the configuration again; a wrong file changes nothing."""
        future: Future[tuple[str, ...]] = Future()
        self._notifier.reloading()
        try:
            future.set_result(self._apply())
        except StokerError as error:
            _log.error("%s", error.message)
            future.set_exception(error)
        except Exception as error:  # ours; through SIGHUP's callback it would unhook SIGHUP
            _log.exception("reload failed")
            future.set_exception(error)
        finally:
            self._notifier.ready()
        return future

    def report(self, snapshot: InferenceSnapshot) -> None:
        """One line for ``systemctl status``; said again only when it changes."""
        parts = (snapshot.state, snapshot.model, snapshot.reason)
        if snapshot.state == "loading":
            parts = (snapshot.state, f"{snapshot.load_progress:.0%}", snapshot.reason)
        text = ": ".join(part for part in parts if part)
        if text != self._said:
            self._said = text
            self._notifier.status(text)

    def stale(self) -> tuple[str, ...]:
        """Names of loops that did not come round lately."""
        now = self._clock.monotonic_s()
        return tuple(name for name, turn in self._turns.items() if now - turn() > STALE_AFTER_S)

    def feed_watchdog(self) -> None:
        """Called every half watchdog interval by the main loop."""
        stale = self.stale()
        if not stale:
            self._notifier.watchdog()
        elif stale != self._stale:
            _log.error("watchdog is not fed: no turn of %s", ", ".join(stale))
        self._stale = stale
