"""``stokerd --score``: how surprised a model is by given texts, for the probes of updates.

A runner of its own loads the model; nobody else is asked. The figures are those that a
device's health probes are compared with, so they are made in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from stoker.config.schema import Config, ModelConfig
from stoker.events import runner as wire
from stoker.ports.runner import RunnerProcess
from stoker.services.model_probe import nats_per_token
from stoker.services.runner_answer import answer
from stoker.services.runner_requests import load_request
from stoker.units import Seconds

SILENCE_S: Final = Seconds(600.0)


def scores(
    runner: RunnerProcess, model: ModelConfig, config: Config, threads: int, texts: Sequence[str]
) -> Iterator[dict[str, object]]:
    """One figure a text, as it comes. Raises StokerError: no such file, a text too long."""
    runner.send(load_request("load", model, config, threads))
    answer(runner, wire.Loaded, SILENCE_S, "score")
    for text in texts:
        runner.send(wire.Score("score", text))
        found = answer(runner, wire.Answer, SILENCE_S, "score").result
        yield {"text": text, "nats_per_token": round(nats_per_token(found), 6)}
