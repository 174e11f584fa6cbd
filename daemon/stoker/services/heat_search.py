"""Runs the search for everything about heat, one at a time, in a thread that ends with it."""

from __future__ import annotations

import threading
from concurrent.futures import Future

from stoker.core.heat_report import report
from stoker.core.thermal_plan import ThermalPlan
from stoker.errors import Unavailable
from stoker.events.heat_finds import Found
from stoker.ports.thermal import HeatInventory


class HeatSearch:
    """Those who ask while a search runs get its result: nobody can make us search more often
    than the slowest sensor answers."""

    def __init__(self, inventory: HeatInventory | None) -> None:
        self._inventory = inventory
        self._lock = threading.Lock()
        self._running: Future[tuple[Found, ...]] | None = None

    def start(self, plan: ThermalPlan) -> Future[tuple[Found, ...]]:
        """Any thread. Fails with Unavailable where there is nothing to search with."""
        with self._lock:
            if self._running is not None and not self._running.done():
                return self._running
            future: Future[tuple[Found, ...]] = Future()
            self._running = future
        if self._inventory is None:
            future.set_exception(Unavailable("cannot search for sensors: not on this machine"))
            return future
        run = threading.Thread(
            target=_search, args=(self._inventory, plan, future), name="heat-search", daemon=True
        )
        run.start()
        return future


def _search(inventory: HeatInventory, plan: ThermalPlan, future: Future[tuple[Found, ...]]) -> None:
    try:
        future.set_result(report(plan, inventory.findings()))
    except Exception as error:  # told to who asked; the loop has nothing to do with it
        future.set_exception(error)
