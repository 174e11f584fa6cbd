"""Where windows are made: in this process or in several, always handed back in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from stoker_ota.core.choice import Choosing, Made
from stoker_ota.core.plan import WindowPlan


@dataclass(frozen=True, slots=True)
class Task:
    """One window: its plan, and the stretch of the source in which a search may look."""

    plan: WindowPlan
    near_off: int = 0
    near_len: int = 0


class WindowPool(Protocol):
    """Takes tasks as they come, keeps a bounded number of them, returns results in order."""

    def make(self, tasks: Iterable[Task], how: Choosing) -> Iterator[Made]: ...
