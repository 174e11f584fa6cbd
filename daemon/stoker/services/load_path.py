"""From "this model" to a Load: the runner inspects the file, a pure plan decides, Load goes.

The seam of the fit planner: ``plan_load`` gets the facts and the settings and returns the
Load to send, or raises the typed error that refuses it. It waits for nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Protocol

from stoker.config.schema import Config, ModelConfig
from stoker.events import runner as wire
from stoker.services.runner_requests import load_request

Facts = Mapping[str, object]
"""The answer to Inspect; {} when the runner could not say (then Load finds out)."""


class PlanLoad(Protocol):
    def __call__(
        self, load_id: str, model: ModelConfig, config: Config, threads: int, facts: Facts
    ) -> wire.Load:
        """Context, slots and KV type that fit; raises InsufficientMemory with what would."""


def plan_as_configured(
    load_id: str,
    model: ModelConfig,
    config: Config,
    threads: int,
    facts: Facts,  # noqa: ARG001
) -> wire.Load:
    """What configuration says, whatever the file and the memory are."""
    return load_request(load_id, model, config, threads)


def inspect_then(inspected: Future[Facts], then: Callable[[Facts], None]) -> None:
    """``then`` hears the facts, or {}: a file that cannot be inspected may still load, and
    if it cannot, Load's own error says why.
    """

    def done(answer: Future[Facts]) -> None:
        then({} if answer.exception() is not None else answer.result())

    inspected.add_done_callback(done)
