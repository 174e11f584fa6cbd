"""Which jobs may share a step: those under the same adapters, one set after the other. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from stoker.runner.jobs import Job

Key = tuple[tuple[str, float], ...]


class AdapterLanes:
    """llama.cpp applies adapters to a whole batch; ``key`` is what the last choice needs."""

    def __init__(self) -> None:
        self._of: Sequence[Job] = ()
        self._lanes: list[tuple[Key, list[Job]]] = []
        self._turn = 0
        self.key: Key = ()

    def pick(self, running: list[Job]) -> list[Job]:
        """The jobs of the next step, in their order. ``running`` is the same list while the
        jobs are the same.
        """
        if running is not self._of:
            groups: dict[Key, list[Job]] = {}
            for job in running:
                groups.setdefault(job.adapters, []).append(job)
            self._of, self._lanes = running, list(groups.items())
        self._turn = (self._turn + 1) % max(len(self._lanes), 1)
        if len(self._lanes) == 1:
            self.key = self._lanes[0][0]
            return running
        self.key, lane = self._lanes[self._turn]
        return lane
