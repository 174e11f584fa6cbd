"""``stokerd --score``: how surprised a model is by given texts, for the probes of updates.

A runner of its own loads the model; nobody else is asked. The figures are those that a
device's health probes are compared with, so they are made in the same way.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterator, Sequence
from typing import Final

from stoker.config.schema import Config, ModelConfig
from stoker.errors import EngineFailed
from stoker.events import runner as wire
from stoker.ports.runner import RunnerProcess
from stoker.services import job_errors
from stoker.services.model_probe import nats_per_token
from stoker.services.runner_requests import load_request

SILENCE_S: Final = 600.0


def scores(
    runner: RunnerProcess, model: ModelConfig, config: Config, threads: int, texts: Sequence[str]
) -> Iterator[dict[str, object]]:
    """One figure a text, as it comes. Raises StokerError: no such file, a text too long."""
    runner.send(load_request("load", model, config, threads))
    _await(runner, wire.Loaded)
    for text in texts:
        runner.send(wire.Score("score", text))
        answer = _await(runner, wire.Answer)
        assert isinstance(answer, wire.Answer), "awaited"
        yield {"text": text, "nats_per_token": round(nats_per_token(answer.result), 6)}


def _await(runner: RunnerProcess, kind: type) -> wire.Event:
    end = time.monotonic() + SILENCE_S
    while (left := end - time.monotonic()) > 0:
        runner.flush()
        ready, _, _ = select.select([runner.fileno()], [], [], min(left, 1.0))
        events = runner.receive() if ready else []
        if events is None:
            break
        for event in events:
            if isinstance(event, wire.Failed):
                raise job_errors.typed(event.code, event.message, event.hint, event.details)
            if isinstance(event, kind):
                return event
    raise EngineFailed("cannot score: the runner does not answer")
