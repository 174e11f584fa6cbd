"""What the memory watch may do to jobs and runner. Owned by the inference loop's thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from stoker.core import fit
from stoker.core import runner_life as life
from stoker.events import runner as wire
from stoker.ports.system import Clock
from stoker.services.job_desk import JobDesk
from stoker.services.runner_link import RunnerLink
from stoker.services.runner_queries import OURSELVES, Answered


class MemoryHands:
    """See ``memory_watch.Hands``. ``link`` gives the runner that serves now."""

    def __init__(
        self,
        link: Callable[[], RunnerLink],
        desk: JobDesk,
        clock: Clock,
        swapping: Callable[[], bool],
    ) -> None:
        self._link, self._desk, self._clock, self._swapping = link, desk, clock, swapping

    def serving(self) -> str:
        state = self._link().state
        return state.model if state.phase is life.Phase.READY else ""

    def pid(self) -> int:
        process = self._link().process
        return process.pid if process is not None else 0

    def idle(self) -> bool:
        return not self._desk.queue.state.jobs and not self._swapping()

    def evict(self) -> int:
        return self._desk.evict()

    def room(self, slots: int, parked_slots: int) -> None:
        self._desk.queue.resize(slots, parked_slots)

    def resize(self, plan: fit.Plan) -> Answered:
        return self._link().query(
            lambda key: wire.Resize(
                key, plan.slots + plan.parked_slots, plan.context_tokens, plan.cache_tokens
            ),
            self._clock.monotonic_s(),
            OURSELVES,
        )

    def resized(self, result: dict[str, object]) -> None:
        link = self._link()
        if link.loaded is None:
            return
        slots, context, size = (result.get(key) for key in ("slots", "context_tokens", "kv_bytes"))
        if isinstance(slots, int) and isinstance(context, int) and isinstance(size, int):
            link.loaded = replace(link.loaded, slots=slots, context_tokens=context, kv_bytes=size)

    def restart(self) -> None:
        self._link().step(life.Restart(self._clock.monotonic_s()))
