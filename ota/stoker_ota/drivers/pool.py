"""Window pools: inline, or one process a core. Results come in order whatever finishes first,
so that the same inputs give the same bytes.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Final

from stoker_ota.core import choice
from stoker_ota.core.choice import Choosing, Made, Stretch
from stoker_ota.drivers.files import SourceFile
from stoker_ota.errors import Dependency, NoMemory
from stoker_ota.ports.files import ReadAt
from stoker_ota.ports.pool import Task

_AHEAD: Final = 4
"""Windows in flight for each process: enough that none waits, few enough to be small."""


def work(task: Task, how: Choosing, old: ReadAt, new: ReadAt) -> Made:
    """One window, from the files."""
    plan = task.plan
    src_off, src_len = plan.source_range
    paired = Stretch(src_off, old.read_at(src_off, src_len))
    near = Stretch(task.near_off, old.read_at(task.near_off, task.near_len))
    return choice.make(plan, new.read_at(plan.dst_off, plan.dst_len), paired, near, how)


class InlinePool:
    """All in this process, for small files and tests."""

    def __init__(self, old: ReadAt, new: ReadAt) -> None:
        self._old, self._new = old, new

    def make(self, tasks: Iterable[Task], how: Choosing) -> Iterator[Made]:
        for task in tasks:
            yield work(task, how, self._old, self._new)


class ProcessPool:
    """``jobs`` processes that open both files themselves."""

    def __init__(self, old: Path, new: Path, jobs: int) -> None:
        self._paths = (old, new)
        self._jobs = jobs

    def make(self, tasks: Iterable[Task], how: Choosing) -> Iterator[Made]:
        executor = self._executor()
        waiting: deque[Future[Made]] = deque()
        try:
            for task in tasks:
                waiting.append(executor.submit(_work, task, how))
                if len(waiting) > _AHEAD * self._jobs:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise NoMemory(
                "cannot make the delta: a process that made a window was killed",
                hint="fewer --jobs or a smaller --window need less memory",
            ) from error
        finally:
            executor.shutdown(cancel_futures=True)

    def _executor(self) -> ProcessPoolExecutor:
        try:
            return ProcessPoolExecutor(
                self._jobs,
                mp_context=multiprocessing.get_context("spawn"),  # fork would copy a bar's thread
                initializer=_open,
                initargs=self._paths,
            )
        except OSError as error:  # semaphores are files in /dev/shm
            raise Dependency(
                f"cannot make the delta with several processes: {error.strerror}",
                hint="they need a /dev/shm that may be written to; --jobs 1 does without",
            ) from error


_files: tuple[SourceFile, SourceFile]


def _open(old: Path, new: Path) -> None:
    global _files
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    _files = (SourceFile(old), SourceFile(new))


def _work(task: Task, how: Choosing) -> Made:
    return work(task, how, *_files)
