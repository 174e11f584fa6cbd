"""Other adapters for the model that serves, while it answers: nothing is loaded again.

Owned by the inference loop's thread. Jobs that run end under the adapters that they began with;
the runner sees to that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Final

from stoker import errors
from stoker.config.schema import AdapterConfig, Config, ModelConfig
from stoker.core import runner_life as life
from stoker.core.installed_set import adapters_of
from stoker.events import runner as wire
from stoker.services import job_errors
from stoker.services.model_swap import same_setup
from stoker.services.runner_bank import RunnerBank
from stoker.services.runner_queries import OURSELVES
from stoker.units import Seconds

ADAPT_TIMEOUT_S: Final = Seconds(120.0)  # an adapter of some hundred megabytes, from a card
NOTHING, ADAPTERS, MODEL = "nothing", "adapters", "model"


class AdapterChange:
    """``room``: memory holds these files beside what runs."""

    def __init__(self, bank: RunnerBank, room: Callable[[list[str]], bool]) -> None:
        self._bank, self._room = bank, room

    def difference(self, model: ModelConfig, config: Config) -> str:
        """``nothing``; ``adapters``, which the serving runner can take; else ``model``."""
        link = self._bank.serving
        if link.state.model != model.name or link.models.get(model.name) != model:
            return MODEL
        if same_setup(link.config, config, model.name):
            return NOTHING
        if link.config.runner.libraries != config.runner.libraries:
            return MODEL
        known = {item.path for item in adapters_of(link.config, model.name)}
        fresh = [a.path for a in adapters_of(config, model.name) if a.path not in known]
        ready = link.state.phase is life.Phase.READY
        return ADAPTERS if ready and self._room(fresh) else MODEL

    def adapt(self, config: Config, now: Seconds, *, keep: bool) -> Future[None]:
        """Busy while the model is being changed; ModelUnavailable when an adapter cannot be used
        (the others can). ``keep``: also when this model's runner is started again.
        """
        bank, link = self._bank, self._bank.serving
        if bank.swap.active:
            raise job_errors.swapping(bank.swap.model, bank.eta_s(now))
        adapters = adapters_of(config, link.state.model)
        ended: Future[None] = Future()

        def done(answer: Future[Mapping[str, object]]) -> None:
            error = answer.exception() or _unusable(answer.result())
            if error is not None:
                ended.set_exception(error)
                return
            if keep:
                link.config = replace(link.config, adapters=config.adapters)
            ended.set_result(None)

        asked = bank.query(lambda key: _adapt(key, adapters), now, OURSELVES, ADAPT_TIMEOUT_S)
        asked.add_done_callback(done)
        return ended


def _adapt(key: str, adapters: tuple[AdapterConfig, ...]) -> wire.Adapt:
    return wire.Adapt(key, tuple(wire.Adapter(item.name, item.path) for item in adapters))


def _unusable(answer: Mapping[str, object]) -> errors.StokerError | None:
    found = answer.get("unusable")
    if not isinstance(found, Mapping) or not found:
        return None
    name, reason = next(iter(found.items()))
    return errors.ModelUnavailable(f"cannot use adapter {name}: {reason}")
