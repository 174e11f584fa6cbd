"""org.stoker.Agent1: one screen of facts for everyone, reload and restart for administrators."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import stoker
from stoker.api import contract
from stoker.api.exports import Answer, Door, Later, bus_text, vardict
from stoker.api.inference import memory_use
from stoker.api.managing import as_manager
from stoker.events.inference import Owner
from stoker.events.models import SwapResult
from stoker.ports.doors import AgentDoor, InferenceDoor, InferenceSnapshot, ThermalDoor
from stoker.ports.system import Authority


class AgentRoom:
    def __init__(
        self,
        agent: AgentDoor,
        inference: InferenceDoor,
        thermal: ThermalDoor,
        authority: Authority,
    ) -> None:
        self._agent = agent
        self._inference = inference
        self._thermal = thermal
        self._authority = authority

    def door(self) -> Door:
        return Door(
            contract.AGENT,
            {
                "Status": self.status,
                "Reload": self.reload,
                "RestartRunner": self.restart_runner,
                "SelectModel": self.select_model,
            },
            lambda _owner: {"Version": stoker.__version__},
        )

    def status(self, _owner: Owner, _args: tuple[Any, ...]) -> Later:
        return Later(self._inference.usage(), self._status)

    def _status(self, now: InferenceSnapshot) -> Answer:
        heat, share = self._thermal.snapshot(), self._agent.cpu_share()
        facts = vardict(
            version=("s", stoker.__version__),
            state=("s", now.state),
            state_reason=("s", now.reason),
            model=("s", now.model),
            engine=("s", now.engine),
            library=("s", now.library),
            runner_pid=("i", now.runner_pid),
            runner_restarts=("u", now.runner_restarts),
            runner_memory_bytes=("t", now.runner_memory_bytes),
            queue_depth=("u", now.queue_depth),
            active_jobs=("u", now.active_jobs),
            threads=("u", now.threads),
            cpu_state=("s", share.state),
            cpus=("s", share.cpus),
            cpu_reason=("s", share.reason),
            uptime_s=("d", float(self._agent.uptime_s())),
            wall_c=("d", float(heat.wall_c)),
            thermal_state=("s", heat.state),
            board=("s", heat.board),
            memory_level=("s", now.memory_level),
            prompt_tokens=("t", now.tokens.prompt),
            cached_tokens=("t", now.tokens.cached),
            completion_tokens=("t", now.tokens.completion),
            sampled_tokens=("t", now.sampled_tokens),
            **memory_use(now.memory, whole=True),
        )
        if heat.temperature_c is not None:
            facts |= vardict(temperature_c=("d", float(heat.temperature_c)))
        return Answer((facts,))

    def reload(self, owner: Owner, _args: tuple[Any, ...]) -> Later:
        done = self._as_manager(owner, "reload the configuration", self._agent.reload)
        return Later(done, lambda keys: Answer(([bus_text(key) for key in keys],)))

    def restart_runner(self, owner: Owner, _args: tuple[Any, ...]) -> Later:
        done = self._as_manager(owner, "restart the runner", self._inference.restart_runner)
        return Later(done, lambda _done: Answer())

    def select_model(self, owner: Owner, args: tuple[Any, ...]) -> Later:
        name = str(args[0])
        done = self._as_manager(
            owner, "change the model", lambda: self._inference.select_model(name)
        )
        return Later(done, _swapped)

    def _as_manager(self, owner: Owner, deed: str, act: Callable[[], Future[Any]]) -> Future[Any]:
        return as_manager(self._authority, owner, deed, act)


def _swapped(result: SwapResult) -> Answer:
    facts = vardict(
        model=("s", result.model),
        previous=("s", result.previous),
        beside=("b", result.beside),
        took_s=("d", float(result.took_s)),
        preempted=("u", result.preempted),
    )
    return Answer((facts,))
