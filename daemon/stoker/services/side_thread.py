"""Work that may wait for a disk or for /proc: one thread of its own, a short queue, futures.

Neither the bus nor a loop may wait for a file that hangs. It decides nothing.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from stoker import errors

_T = TypeVar("_T")
MAX_WAITING: Final = 64


class SideThread:
    """A daemon thread, begun with the first work: what hangs in it must not hold up the end."""

    def __init__(self, name: str) -> None:
        self._work: queue.Queue[Callable[[], None]] = queue.Queue(MAX_WAITING)
        self._name = name
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def call(self, work: Callable[[], _T]) -> Future[_T]:
        """Any thread. Busy when too much waits."""
        future: Future[_T] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except Exception as error:  # one call's fault must not end the thread
                future.set_exception(error)

        try:
            self._work.put_nowait(run)
        except queue.Full:
            hint = "try again in 1 s"
            future.set_exception(errors.Busy("cannot answer: others are waiting", hint=hint))
        self._begin()
        return future

    def _begin(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            self._work.get()()
