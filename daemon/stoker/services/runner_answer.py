"""The answer of a runner that was started for one question: nobody else asks it anything."""

from __future__ import annotations

import select
import time
from typing import Final, TypeVar

from stoker.errors import EngineFailed
from stoker.events import runner as wire
from stoker.ports.runner import RunnerProcess
from stoker.services import job_errors
from stoker.units import Seconds

_FLUSH_EVERY_S: Final = 1.0  # what the socket did not take at once
_Event = TypeVar("_Event", bound=wire.Event)


def answer(runner: RunnerProcess, kind: type[_Event], limit_s: Seconds, doing: str) -> _Event:
    """The next of a kind. The error that it tells; EngineFailed "cannot ``doing``: …" if none."""
    end = time.monotonic() + limit_s
    while (left := end - time.monotonic()) > 0:
        runner.flush()
        ready, _, _ = select.select([runner.fileno()], [], [], min(left, _FLUSH_EVERY_S))
        events = runner.receive() if ready else []
        if events is None:
            break
        for event in events:
            if isinstance(event, wire.Failed):
                raise job_errors.typed(event.code, event.message, event.hint, event.details)
            if isinstance(event, kind):
                return event
    raise EngineFailed(f"cannot {doing}: the runner does not answer")
