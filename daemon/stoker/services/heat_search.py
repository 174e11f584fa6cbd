"""Runs the search for everything about heat, one at a time, in a thread that ends with it."""

from __future__ import annotations

import threading
from concurrent.futures import Future, InvalidStateError
from typing import Final

from stoker.core.heat_report import report
from stoker.core.thermal_plan import ThermalPlan
from stoker.errors import Busy, Unavailable
from stoker.events.heat_finds import Found
from stoker.ports.thermal import HeatInventory
from stoker.services.futures import failed

LIMIT_S: Final = 20.0
"""Less than a D-Bus call waits. What reads so long hangs in a driver; nothing can end it."""
MAX_HUNG: Final = 3


class HeatSearch:
    """Those who ask while a search runs get its result: nobody can make us search more often
    than the slowest sensor answers. One that hangs is given up, its thread is not: some of
    them may pile up, then there is no search until one comes back."""

    def __init__(self, inventory: HeatInventory | None, limit_s: float = LIMIT_S) -> None:
        self._inventory, self._limit_s = inventory, limit_s
        self._lock = threading.Lock()
        self._running: Future[tuple[Found, ...]] | None = None
        self._threads: list[threading.Thread] = []

    def start(self, plan: ThermalPlan) -> Future[tuple[Found, ...]]:
        """Any thread. Fails with Unavailable where there is nothing to search with or it does
        not end, with Busy while several hang."""
        with self._lock:
            if self._running is not None and not self._running.done():
                return self._running
            if self._inventory is None:
                return failed(Unavailable("cannot search for sensors: not on this machine"))
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            if len(self._threads) >= MAX_HUNG:
                error = f"cannot search for sensors: {MAX_HUNG} searches hang in a driver"
                return failed(Busy(error, hint="see the kernel's messages: dmesg"))
            self._running = future = Future[tuple[Found, ...]]()
            args = (self._inventory, plan, future)
            run = threading.Thread(target=_search, args=args, name="heat-search", daemon=True)
            run.start()
            self._threads.append(run)
        patience = threading.Timer(self._limit_s, _give_up, (future, self._limit_s))
        patience.daemon = True
        future.add_done_callback(lambda _done: patience.cancel())
        patience.start()
        return future


def _search(inventory: HeatInventory, plan: ThermalPlan, future: Future[tuple[Found, ...]]) -> None:
    try:
        found = report(plan, inventory.findings())
    except Exception as error:  # told to who asked; the loop has nothing to do with it
        _end(future, error)
    else:
        _end(future, found)


def _give_up(future: Future[tuple[Found, ...]], limit_s: float) -> None:
    error = f"cannot search for sensors: one of them did not answer for {limit_s:g} s"
    _end(future, Unavailable(error, hint="see the kernel's messages: dmesg"))


def _end(future: Future[tuple[Found, ...]], how: tuple[Found, ...] | Exception) -> None:
    """Once: the search and its limit may come together."""
    try:
        if isinstance(how, Exception):
            future.set_exception(how)
        else:
            future.set_result(how)
    except InvalidStateError:
        return
