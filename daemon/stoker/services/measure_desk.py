"""Measures of the runner's speed for operating points: one at a time, while nobody is answered.

Owned by the inference loop's thread. New jobs wait until a measure has ended (a second or two);
which ones are made, and what for, is ``calibration``'s.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, Protocol, cast

from stoker import errors
from stoker.events import runner as wire
from stoker.events.operating import Measured, Setting
from stoker.services.runner_queries import Answered
from stoker.units import Seconds

MARGIN_S: Final = Seconds(60.0)
"""Beyond the measure's own time: its warm-up on a slow board."""

Ask = Callable[[Callable[[str], wire.Request], Seconds], Answered]


class Jobs(Protocol):
    def running(self) -> int: ...

    def drain(self, draining: bool) -> None: ...


class MeasureDesk:
    """``changing``: the model is being changed, which drains the jobs too."""

    def __init__(self, jobs: Jobs, ask: Ask, changing: Callable[[], bool]) -> None:
        self._jobs, self._ask, self._changing = jobs, ask, changing
        self._drains = False

    def begin(self, setting: Setting, limit_s: Seconds, ended: Future[Measured]) -> None:
        """Fails with Busy while a job runs, and with what the runner says."""
        if self._jobs.running() or self._changing() or self._drains:
            ended.set_exception(errors.Busy("cannot measure: answers are being made"))
            return
        self._drains = True
        self._jobs.drain(True)

        def done(answer: Answered) -> None:
            self._drains = False
            if not self._changing():  # a change of the model began meanwhile: the drain is its own
                self._jobs.drain(False)
            error = answer.exception()
            if error is not None:
                ended.set_exception(error)
                return
            found = answer.result()
            wall_s = cast(float, found["wall_s"])
            busy = cast(float, found["cpu_s"]) / max(wall_s, 1e-9)
            ended.set_result(Measured(cast(int, found["tokens"]), Seconds(wall_s), busy))

        limit_ms = max(1, round(1000 * limit_s))
        self._ask(
            lambda key: wire.Measure(key, setting.phase, setting.threads, limit_ms),
            Seconds(limit_s + MARGIN_S),
        ).add_done_callback(done)
