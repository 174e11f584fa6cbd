"""The tour itself: numbered steps, each with a deadline; the first that fails ends it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from subprocess import SubprocessError
from types import FrameType
from typing import NoReturn

from stoker.errors import DeadlineExceeded, StokerError
from stoker.tour.screen import Screen
from stoker_client import StokerClientError


class StepFailed(Exception):
    """Step ``number`` did not work; says why."""

    def __init__(self, number: int, title: str, reason: str) -> None:
        super().__init__(f"step {number} ({title}) failed: {reason}")


@dataclass(frozen=True, slots=True)
class Step:
    title: str
    limit_s: float
    act: Callable[[], None]


def walk(steps: Sequence[Step], screen: Screen) -> None:
    """Every step in turn. Raises StepFailed."""
    for number, step in enumerate(steps, start=1):
        screen.heading(number, len(steps), step.title)
        try:
            with deadline(step.limit_s):
                step.act()
        except (StokerError, StokerClientError, OSError, SubprocessError) as error:
            raise StepFailed(number, step.title, str(error)) from error


@contextmanager
def deadline(limit_s: float) -> Iterator[None]:
    """DeadlineExceeded in the main thread after so long, whatever it waits for."""

    def late(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise DeadlineExceeded(f"not done after {limit_s:.0f} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
