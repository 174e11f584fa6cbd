"""The limits of what is kept, carried out: quotas, expiry, eviction, the log folded in.

core.retention decides what goes. Session thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from stoker import errors
from stoker.config.schema import SessionsConfig
from stoker.core import retention
from stoker.events.sessions import Holding
from stoker.ports.sessions import SessionStore

_log = logging.getLogger(__name__)
LOG_LIMIT_BYTES = 16 << 20  # then the log is folded in even while there is work
CLOCK_JUMP_S = 3600.0  # more is a clock that was set, not one that drifts


class Keeping:
    def __init__(
        self, config: SessionsConfig, store: SessionStore, forget: Callable[[str, int], None]
    ) -> None:
        self.config = config
        self._store, self._forget = store, forget
        self._scrub = False  # deleted text waits in the log
        self._ahead_s: float | None = None  # wall clock minus time since boot
        self._since_s = 0.0

    def admit(self, uid: int, *, newcomer: bool) -> None:
        """QuotaExceeded at a limit, where the policy is to refuse."""
        if self.config.when_full != "refuse":
            return
        why = retention.refusal(self._store.holdings(), self._bounds(), uid, newcomer=newcomer)
        if why:
            raise errors.QuotaExceeded(
                f"cannot keep more conversations: limit {why} is reached",
                hint="delete some: stokerctl sessions delete ID",
                details={"limit": why},
            )

    def make_room(self, protect: str = "") -> None:
        """Let go what passes the limits; never ``protect``."""
        if self.config.when_full != "evict":
            return
        holdings = [_busy(item) if item.id == protect else item for item in self._store.holdings()]
        self._let_go(retention.overflowing(holdings, self._bounds()))

    def expire(self, now_s: float) -> None:
        self._let_go(retention.expired(self._store.holdings(), self._bounds(), now_s))

    def follow_clock(self, wall_s: float, since_boot_s: float) -> None:
        """A board without a battery-backed clock may start in 1970 and jump to today.

        What was used since we started moves along, so that it is neither decades old nor
        younger than tomorrow's. ``since_boot_s`` counts sleep too: waking sets no clock.
        """
        ahead = wall_s - since_boot_s
        if self._ahead_s is None:
            self._since_s = wall_s
        elif abs(jump := ahead - self._ahead_s) > CLOCK_JUMP_S:
            _log.warning("the clock was set by %.0f s", jump)
            self._store.shift(self._since_s, jump)
            self._since_s += jump
        self._ahead_s = ahead

    def scrub(self) -> None:
        """Deleted text leaves the log too; tried again when a reader is in the way."""
        self._scrub = not self._store.checkpoint()

    def rest(self) -> None:
        """Nothing else to do: fold the log into the file."""
        if self._scrub or self._store.log_bytes():
            self.scrub()

    def work_on(self) -> None:
        """There is work; the log must not grow without end for that."""
        if self._store.log_bytes() > LOG_LIMIT_BYTES:
            self.scrub()

    def _let_go(self, farewells: list[retention.Farewell]) -> None:
        for item in farewells:
            _log.info("session %s of user %d goes: %s", item.id, item.uid, item.reason)
            self._store.delete(item.id, item.uid)
            self._forget(item.id, item.uid)
        if farewells:
            self.scrub()

    def _bounds(self) -> retention.Bounds:
        config = self.config
        return retention.Bounds(
            ttl_s=config.ttl_s,
            per_user=config.max_sessions_per_user,
            per_user_bytes=config.max_bytes_per_user,
            all_bytes=config.max_bytes,
        )


def _busy(item: Holding) -> Holding:
    return Holding(item.id, item.uid, item.used_s, item.size_bytes, item.ttl_s, busy=True)
