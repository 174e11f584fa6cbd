"""Threads and duty of the runner that serves, as heat wants them: sent when they change.

Owned by the inference loop's thread. What they should be is the thermal loop's decision.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from stoker.events import runner as wire
from stoker.services.runner_queries import Answered

DUTY_STEPS: Final = 32
"""Duty is rounded down to parts of it: the budget moves with every tick, a frame need not."""

Ask = Callable[[Callable[[str], wire.Request]], Answered]
"""Puts a query of our own to the runner that serves."""


@dataclass(frozen=True, slots=True)
class Pace:
    """``threads`` 0 = as configured."""

    threads: int = 0
    threads_batch: int = 0
    duty: float = 1.0


class RunnerPace:
    """``configured``: (threads, threads_batch) that a load sets."""

    def __init__(self, ask: Ask, configured: Callable[[], tuple[int, int]]) -> None:
        self._ask, self._configured = ask, configured
        self.wanted = Pace()
        self._sent = Pace()  # what a runner has after a load

    @property
    def threads(self) -> int:
        """While it writes."""
        return self.wanted.threads or self._configured()[0]

    def want(self, threads: int, threads_batch: int, duty: float) -> None:
        rounded = 1.0 if duty >= 1.0 else max(1, math.floor(duty * DUTY_STEPS)) / DUTY_STEPS
        self.wanted = Pace(threads, threads_batch, rounded)

    def loaded(self) -> None:
        """Another runner or another model: it has the configured ones."""
        self._sent = Pace()

    def tick(self, *, ready: bool) -> None:
        """Send what is not known to the runner yet."""
        if not ready or self.wanted == self._sent:
            return
        self._sent = wanted = self.wanted
        threads, batch = self._configured()
        most = (min(wanted.threads or threads, threads), min(wanted.threads_batch or batch, batch))
        self._ask(lambda key: wire.SetThreads(key, *most, wanted.duty))
