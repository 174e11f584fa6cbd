"""Questions to the runner that are no jobs (tokenize, stats, …): who waits, and how long.

Each may hold a megabyte here and in the runner, which answers one at a time. So there are
few places, and no user has them all. It sends nothing and knows no process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from stoker import errors
from stoker.core.runner_life import RunnerGone
from stoker.events import runner as wire
from stoker.services import job_errors
from stoker.units import Seconds

QUERY_TIMEOUT_S: Final = Seconds(30.0)
MAX_QUERIES: Final = 8
MAX_OF_USER: Final = 3
OURSELVES: Final = -1  # the agent's own questions: no user's share, and always a place

Answered = Future[Mapping[str, object]]


@dataclass(slots=True)
class _Query:
    future: Answered
    uid: int
    deadline_s: Seconds
    caller: str  # unique name; "" = ourselves


class RunnerQueries:
    """Those that are with the runner now, by their ids."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Query] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def refusal(self, uid: int) -> errors.StokerError | None:
        """Why this user may not ask now; None when it may."""
        if uid == OURSELVES:
            return None
        users = [query.uid for query in self._waiting.values() if query.uid != OURSELVES]
        if len(users) >= MAX_QUERIES or users.count(uid) >= MAX_OF_USER:
            return job_errors.too_many_queries()
        return None

    def add(
        self,
        request_id: str,
        uid: int,
        now: Seconds,
        timeout_s: Seconds = QUERY_TIMEOUT_S,
        caller: str = "",
    ) -> Answered:
        future: Answered = Future()
        self._waiting[request_id] = _Query(future, uid, Seconds(now + timeout_s), caller)
        return future

    def give_up(self, request_id: str, error: errors.StokerError) -> None:
        """It was never sent."""
        self._waiting.pop(request_id).future.set_exception(error)

    def answered(self, event: wire.Failed | wire.Answer) -> None:
        """Late answers, of queries that are given up, count for nothing."""
        query = self._waiting.pop(event.id, None)
        if query is None:
            return
        if isinstance(event, wire.Answer):
            query.future.set_result(event.result)
        else:
            query.future.set_exception(
                job_errors.typed(event.code, event.message, event.hint, event.details)
            )

    def tick(self, now: Seconds) -> list[str]:
        """Ids of those that are too late: the runner need not go on with them."""
        late = errors.DeadlineExceeded("cannot answer query: the runner took too long")
        return self._drop(late, lambda query: now >= query.deadline_s)

    def vanish(self, caller: str) -> list[str]:
        """Ids of those that nobody waits for: the caller left the bus."""
        gone = errors.Cancelled("query cancelled: its caller left the bus")
        return self._drop(gone, lambda query: query.caller == caller)

    def drop(self, error: errors.StokerError) -> list[str]:
        """Ids of all that callers asked."""
        return self._drop(error, lambda query: query.uid != OURSELVES)

    def _drop(self, error: errors.StokerError, which: Callable[[_Query], bool]) -> list[str]:
        dropped = [key for key, query in self._waiting.items() if which(query)]
        for key in dropped:
            self._waiting.pop(key).future.set_exception(error)
        return dropped

    def lose(self, gone: RunnerGone) -> None:
        """Their runner is gone."""
        lost, self._waiting = self._waiting, {}
        failure = job_errors.query_lost(gone)
        for query in lost.values():
            query.future.set_exception(failure)
