"""The runners of the service: one serves, a swap brings a second, others are on their way out.

Owned by the inference loop's thread. Says whether a job can be taken and how long it will
wait for a model, and lets an idle runner sleep. Who loads next is ``model_swap``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from stoker import errors
from stoker.config.schema import Config, ModelConfig
from stoker.core import model_choice, supervisor, swap
from stoker.core import runner_life as life
from stoker.events import runner as wire
from stoker.ports.streams import Ready
from stoker.services import job_errors
from stoker.services.runner_link import Callbacks, RunnerLink, RunnerParts
from stoker.services.runner_memory import RunnerMemory
from stoker.services.runner_queries import QUERY_TIMEOUT_S, Answered
from stoker.units import Seconds


class RunnerBank:
    """See ``job_desk.Engines``."""

    def __init__(self, config: Config, parts: RunnerParts, callbacks: Callbacks) -> None:
        self._config, self._callbacks = config, callbacks
        self.parts = parts
        self.models = config.models  # as configured now; a swap may bring another one
        self.swap = swap.State()
        self.serving = RunnerLink(config, parts, wanted_first(config, parts.memory), callbacks)
        self.newcomer: RunnerLink | None = None
        self.leaving: list[RunnerLink] = []
        self._used_s = Seconds(0.0)
        self._stopping = False

    def __iter__(self) -> Iterator[RunnerLink]:
        yield self.serving
        if self.newcomer is not None:
            yield self.newcomer
        yield from self.leaving

    def configure(self, config: Config) -> None:
        self._config, self.models = config, config.models
        for link in self:
            link.configure(config)

    def start(self, now: Seconds) -> None:
        self._used_s = now
        self.serving.step(life.Start(now))

    def stop(self, now: Seconds) -> None:
        self._stopping = True
        for link in self:
            link.step(life.Stop(now))

    def restart(self, now: Seconds) -> None:
        """Busy while the model is being changed."""
        if self.swap.active:
            raise job_errors.swapping(self.swap.model, self.eta_s(now))
        self.serving.step(life.Restart(now))

    @property
    def stopping(self) -> bool:
        return self._stopping

    @property
    def stopped(self) -> bool:
        return all(link.state.phase is life.Phase.STOPPED for link in self)

    def ready(self, event: Ready, now: Seconds) -> bool:
        """True if the descriptor was one of ours."""
        return any(link.ready(event, now) for link in list(self))

    def tick(self, now: Seconds, *, busy: bool) -> None:
        for link in list(self):
            link.tick(now, idle=not busy)
        self.leaving = [link for link in self.leaving if not _gone(link)]
        limit = self._config.swap.keep_alive_s
        if busy or self.serving.asked or not limit:
            self._used_s = now
        elif now - max(self._used_s, self.serving.state.since_s) >= limit and not self.swap.active:
            self.serving.step(life.Sleep(now))

    def next_wake_s(self) -> Seconds:
        return min(link.next_wake_s() for link in self)

    def send(self, request: wire.Request) -> None:
        self.serving.send(request)

    def forget(self, scope: str, keep: str) -> None:
        """Every runner with a model drops what it kept; nobody waits for the answer."""
        for link in self:
            if link.loaded is not None:
                link.send(wire.Forget("forget", scope, keep))

    def query(
        self,
        make: Callable[[str], wire.Request],
        now: Seconds,
        uid: int,
        timeout_s: Seconds = QUERY_TIMEOUT_S,
        caller: str = "",
    ) -> Answered:
        self.wanted("", now)
        if self.serving.state.phase is life.Phase.READY:
            return self.serving.query(make, now, uid, timeout_s, caller)
        refused = Answered()
        refused.set_exception(self.unready(now))
        return refused

    def drop_queries(self, error: errors.StokerError) -> None:
        """Callers' questions end; the agent's own go on."""
        for link in self:
            link.drop_queries(error)

    def vanish(self, caller: str) -> None:
        """Nobody waits any more for what this unique name asked."""
        for link in self:
            link.vanish(caller)

    # What a job may hope for.

    def resolve(self, name: str) -> str:
        """The model that a request means: a name or an alias; "" when there is none."""
        return model_choice.resolve(name, self.models) if name else ""

    def refusal(self, name: str, deadline_s: Seconds, now: Seconds) -> errors.StokerError | None:
        """Why a job for this model ("" = any) cannot be taken now."""
        stopped = self.serving.state.phase is life.Phase.STOPPED and not self.swap.active
        if self._stopping or (stopped and not (name and self._may_swap)):
            return self.unready(now)
        hopeless = self.hopeless(name, now)
        if hopeless is not None:
            return hopeless
        refusal = self.unservable(name)
        if refusal is not None:
            return refusal
        wait = self.eta_s(now)
        return job_errors.too_late(wait) if wait and now + wait >= deadline_s else None

    def hopeless(self, name: str, now: Seconds) -> errors.StokerError | None:
        """Why waiting for this model ("" = any) is in vain: all are set aside or gone."""
        if self.serving.state.phase is not life.Phase.NO_MODEL or self.swap.active:
            return None
        return None if name and self._may_swap else self.unready(now)

    def unservable(self, name: str) -> errors.StokerError | None:
        """Why no runner will ever answer a job for this model ("" = any), as things are."""
        if not name or (self.swap.active and self.resolve(name) == self.swap.model):
            return None
        state = self.serving.state
        model, in_use = self.resolve(name), state.model or next(iter(state.models), "")
        if not model:
            return job_errors.unknown_model(name, in_use)
        kept = state.aside.get(model)
        if self.swap.holding or self.swap.down:
            in_use = self.swap.model
        if model != in_use and kept is not None:
            return job_errors.set_aside(name, kept.reason)
        refused = model != in_use and not self._may_swap
        return job_errors.other_model(name, in_use) if refused else None

    @property
    def _may_swap(self) -> bool:
        return self._config.swap.policy != "never"

    def eta_s(self, now: Seconds) -> Seconds:
        """Estimated time until a model takes jobs; 0 = it does, or nothing is known."""
        if self.swap.active:
            return swap.eta_s(self.swap, now)
        return self.serving.eta_s(now)

    def unready(self, now: Seconds) -> errors.StokerError:
        """Why nothing can be answered now, typed."""
        state = self.serving.state
        if self._stopping or (state.phase is life.Phase.STOPPED and not self.swap.active):
            return errors.Unavailable("cannot answer: the service is stopping")
        if state.phase is life.Phase.NO_MODEL and not self.swap.active:
            kept = state.aside.get(next(iter(state.models), ""))
            if kept is not None and kept.code == errors.InsufficientMemory.code:
                return errors.InsufficientMemory(f"cannot answer: {kept.reason}", hint=kept.hint)
            hint = "see 'stokerctl models'; configure one in stoker.toml or with --model"
            return errors.ModelUnavailable(f"cannot answer: {state.reason}", hint=hint)
        loading = self.newcomer if self.swap.down and self.newcomer else self.serving
        return job_errors.loading(loading.progress, self.eta_s(now))

    def proven(self, now: Seconds) -> None:
        self._used_s = now
        self.serving.step(life.Proven(now))

    def wanted(self, model: str, now: Seconds) -> None:
        """Somebody asks: the runner must not sleep, unless it is another model's turn."""
        self._used_s = now
        state = self.serving.state
        if not model or model == supervisor.candidate(state, now):
            self.serving.step(life.Wake(now))

    # What a swap does.

    def stage(
        self, model: ModelConfig, now: Seconds, callbacks: Callbacks, config: Config | None = None
    ) -> None:
        """A second runner, for this model alone; it may not shrink to fit beside the first.
        ``config``: with other adapters or libraries than those in use.
        """
        parts = self.parts
        if self.serving.process is not None:
            parts = replace(parts, plan=parts.plan_beside)
        self.newcomer = RunnerLink(config or self._config, parts, (model,), callbacks)
        self.newcomer.step(life.Start(now))

    def switch(self, now: Seconds) -> None:
        """The newcomer serves; the old one ends."""
        assert self.newcomer is not None, "nobody to switch to"
        old, self.serving, self.newcomer = self.serving, self.newcomer, None
        self.serving.inherit(old, self.parts)
        self.serving.callbacks = self._callbacks
        old.callbacks = Callbacks()
        self.leaving.append(old)
        old.step(life.Stop(now))
        self._used_s = now
        self._callbacks.ready()

    def unload(self, now: Seconds) -> None:
        """The old one ends; whatever it still says is about jobs that it lost."""
        self.serving.callbacks = Callbacks()
        self.serving.step(life.Stop(now))

    def dismiss(self, now: Seconds) -> None:
        """The newcomer ends."""
        if self.newcomer is not None:
            self.newcomer.callbacks = Callbacks()
            self.newcomer.step(life.Stop(now))
            self.leaving.append(self.newcomer)
            self.newcomer = None

    def come_back(self, now: Seconds) -> None:
        """The old model loads again."""
        self.serving.callbacks = self._callbacks
        fresh = self.serving.state.phase is life.Phase.STOPPED
        self.serving.step(life.Start(now) if fresh else life.Restart(now))

    def remember_selected(self, model: str) -> None:
        """An administrator chose it: over restarts too, until the configuration's default is
        another one than today's.
        """
        self.parts.memory.remember_selected(model, default_model(self._config))

    def blame(self, model: str, reason: str, now: Seconds) -> None:
        """Not to be tried again for a while, except by an administrator."""
        state = self.serving.state
        until = Seconds(now + state.restart.crash_window_s)
        aside = {**state.aside, model: life.SetAside(reason, until)}
        self.serving.state = replace(state, aside=aside)


def wanted_first(config: Config, memory: RunnerMemory) -> tuple[ModelConfig, ...]:
    """All models by name, the selected or default one before the others."""
    models = sorted(config.models, key=lambda model: model.name)
    default = default_model(config)
    selected = memory.selected(default)
    wanted = selected if any(model.name == selected for model in models) else default
    return tuple(sorted(models, key=lambda model: model.name != wanted))


def default_model(config: Config) -> str:
    """By the configuration; "" = there is none."""
    return config.default_model or min((model.name for model in config.models), default="")


def _gone(link: RunnerLink) -> bool:
    return link.state.phase is life.Phase.STOPPED
