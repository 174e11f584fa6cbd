"""Changing the model while jobs run: carries out what ``core.swap`` decides.

Owned by the inference loop's thread; looks at each turn, so nothing can be missed. It also
begins the swaps that waiting jobs ask for where policy lets them. ``runner_bank`` has the
runners, ``Jobs`` are the desk's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

from stoker import errors
from stoker.config.schema import Config, ModelConfig
from stoker.core import model_choice, swap
from stoker.core import runner_life as life
from stoker.core.installed_set import adapters_of
from stoker.events.models import Probe, ProbeReport, SwapResult
from stoker.services import job_errors
from stoker.services.model_probe import ModelProbe
from stoker.services.runner_bank import RunnerBank
from stoker.services.runner_link import Callbacks, RunnerLink
from stoker.units import Seconds

_log = logging.getLogger(__name__)
_MAX_STEPS = 16  # of one turn; a swap has fewer
_AWAKE = (life.Phase.READY, life.Phase.ASLEEP, life.Phase.NO_MODEL)

Room = Callable[[ModelConfig], bool]
"""Memory holds this model beside what runs now."""


class Jobs(Protocol):
    """What a swap does to jobs."""

    def running(self) -> int: ...

    def waiting(self) -> Sequence[model_choice.Waiting]: ...

    def drain(self, draining: bool) -> None:
        """Send no (or again) waiting jobs to the runner."""

    def runner_gone(self, gone: life.RunnerGone) -> int:
        """Seen jobs end, others wait again; how many ended."""

    def sweep(self, unservable: Callable[[str], errors.StokerError | None]) -> None:
        """End waiting jobs whose model will never come."""


class ModelSwap:
    def __init__(self, config: Config, bank: RunnerBank, jobs: Jobs, room: Room) -> None:
        self._config, self._bank, self._jobs, self._room = config, bank, jobs, room
        self._model: ModelConfig | None = None
        self._with: Config | None = None  # whose adapters and libraries it gets
        self._probe = Probe()
        self._probing: ModelProbe | None = None
        self._future: Future[SwapResult] = Future()
        self._lost = ""  # why the newcomer went
        self._began_s = Seconds(0.0)
        self._before = ""
        self._beside = False
        self._preempted = 0

    def configure(self, config: Config) -> None:
        self._config = config

    def select(
        self,
        wanted: str | ModelConfig,
        probe: Probe | None,
        now: Seconds,
        config: Config | None = None,
    ) -> Future[SwapResult]:
        """Make this model (a name, an alias, or one that is not configured) the one that serves,
        with the adapters and libraries of ``config`` (None = as they are).

        Fails with ModelUnavailable once the old one serves again, Busy while another change is
        under way, Unavailable when the service stops.
        """
        bank = self._bank
        if bank.stopping:
            raise errors.Unavailable("cannot change the model: the service is stopping")
        if bank.swap.active:
            raise job_errors.swapping(bank.swap.model, bank.eta_s(now))
        model = self._find(wanted) if isinstance(wanted, str) else wanted
        serving = bank.serving
        same = serving.state.model == model.name and serving.models.get(model.name) == model
        if same and (config is None or same_setup(serving.config, config, model.name)):
            return _already(model.name)
        return self._begin(model, probe or self._default_probe(), now, config)

    def tick(self, now: Seconds) -> None:
        if not self._bank.swap.active and not self._bank.stopping:
            self._on_demand(now)
        if not self._bank.swap.active:
            return  # this runs once a token
        for _ in range(_MAX_STEPS):
            self._bank.swap, actions = swap.step(self._bank.swap, self._look(now))
            for action in actions:
                self._carry_out(action, now)
            if not actions:
                return

    def abort(self) -> None:
        """The service stops: all runners end anyway."""
        if self._bank.swap.active:
            self._bank.swap = swap.State()
            self._future.set_exception(
                errors.Unavailable("cannot change the model: the service is stopping")
            )

    def _default_probe(self) -> Probe:
        return Probe(timeout_s=self._config.swap.probe_timeout_s)

    def _find(self, name: str) -> ModelConfig:
        known = self._bank.resolve(name)
        for model in self._bank.models:
            if model.name == known:
                return model
        raise job_errors.unknown_model(name, self._bank.serving.state.model)

    def _on_demand(self, now: Seconds) -> None:
        """Bring in a model that a job waits for, where policy lets it."""
        state = self._bank.serving.state
        policy = self._config.swap.policy
        if policy == "never" or state.phase not in _AWAKE:
            return
        wanted = model_choice.next_model(
            policy,
            state.model,
            self._jobs.waiting(),
            running=self._jobs.running(),
            stayed_s=Seconds(now - state.since_s),
        )
        model = next((model for model in self._bank.models if model.name == wanted), None)
        if model is not None:
            self._begin(model, self._default_probe(), now)

    def _begin(
        self, model: ModelConfig, probe: Probe, now: Seconds, config: Config | None = None
    ) -> Future[SwapResult]:
        bank, old = self._bank, self._bank.serving.state
        beside = old.phase is life.Phase.READY and self._room(model)
        self._model, self._probe, self._probing, self._lost = model, probe, None, ""
        self._with = config
        self._began_s, self._beside, self._preempted = now, beside, 0
        self._future = Future()
        self._before = before = old.model or next(iter(old.models), "")
        _log.info("changing the model from %s to %s%s", before or "none", model.name,
                  ", both loaded meanwhile" if beside else "")  # fmt: skip
        bank.swap, actions = swap.begin(
            bank.swap,
            swap.Begin(
                now,
                model.name,
                before,
                beside=beside,
                drain_s=self._config.swap.drain_timeout_s,
                load_s=bank.parts.memory.load_s(model.name),
                old_load_s=bank.parts.memory.load_s(before),
            ),
        )
        for action in actions:
            self._carry_out(action, now)
        return self._future

    def _look(self, now: Seconds) -> swap.Look:
        bank = self._bank
        return swap.Look(
            now,
            running=self._jobs.running(),
            old=_old(bank.serving),
            new=_new(bank.newcomer, bool(self._lost), bool(bank.leaving)),
            why=self._lost or _why(bank.newcomer),
            verdict=self._probing.verdict(now) if self._probing is not None else None,
        )

    def _carry_out(self, action: swap.Action, now: Seconds) -> None:
        bank, jobs = self._bank, self._jobs
        match action:
            case swap.Stage():
                assert self._model is not None, "a swap has a model"
                bank.stage(self._model, now, Callbacks(gone=self._newcomer_gone), self._with)
            case swap.Prove():
                self._prove(now)
            case swap.Hold():
                jobs.drain(True)
            case swap.Release():
                jobs.drain(False)
            case swap.Unload():
                bank.unload(now)
                self._preempt()
            case swap.Switch():
                self._preempt()
                bank.switch(now)
            case swap.Dismiss():
                self._note_blame(now)
                bank.dismiss(now)
            case swap.Return():
                bank.come_back(now)
            case swap.Finish(reason=reason):
                self._finish(reason, now)

    def _prove(self, now: Seconds) -> None:
        link = self._bank.newcomer
        assert link is not None, "nobody to probe"
        self._probing = ModelProbe(link, self._probe, now)
        link.callbacks = Callbacks(gone=self._newcomer_gone, deltas=self._probing.hear)

    def _preempt(self) -> None:
        gone = life.RunnerGone("another model was loaded", ordered=True)
        self._preempted += self._jobs.runner_gone(gone)

    def _newcomer_gone(self, gone: life.RunnerGone) -> None:
        """One death is enough: the old model is as good as it was."""
        self._lost = self._lost or gone.reason

    def _note_blame(self, now: Seconds) -> None:
        """A kill from outside is nobody's fault; what cannot load or answer is the model's."""
        bank, newcomer, model = self._bank, self._bank.newcomer, self._model
        if newcomer is None or model is None or bank.serving.models.get(model.name) != model:
            return  # another version of it may still be good
        if self._with and not same_setup(bank.serving.config, self._with, model.name):
            return  # nor is it to blame for other libraries or adapters
        verdict = self._probing.verdict(now) if self._probing is not None else None
        kept = newcomer.state.aside.get(model.name)
        if kept is not None:
            bank.blame(model.name, kept.reason, now)
        elif newcomer.state.crashes or (verdict and not self._lost):
            bank.blame(model.name, self._lost or verdict or "it crashed", now)

    def _finish(self, reason: str, now: Seconds) -> None:
        model, future, probing = self._model, self._future, self._probing
        assert model is not None, "a swap has a model"
        self._model, self._probing = None, None
        if reason:
            _log.error("the model was not changed to %s: %s", model.name, reason)
            failure = job_errors.swap_failed(model.name, reason, self._bank.serving.state.model)
            if model.name != self._before:  # else it is the one before that they get
                self._jobs.sweep(lambda name: failure if name == model.name else None)
        self._jobs.sweep(self._bank.unservable)
        if reason:
            future.set_exception(failure)
            return
        _log.info("model %s serves", model.name)
        report = probing.report() if probing is not None else ProbeReport()
        took = Seconds(now - self._began_s)
        result = SwapResult(model.name, self._before, self._beside, took, self._preempted, report)
        future.set_result(result)


def same_setup(one: Config, other: Config, model: str) -> bool:
    """A runner of the one serves the other, too."""
    libraries = one.runner.libraries == other.runner.libraries
    return libraries and adapters_of(one, model) == adapters_of(other, model)


def _already(model: str) -> Future[SwapResult]:
    """It serves, or is on its way as the one that will."""
    done: Future[SwapResult] = Future()
    result = SwapResult(model, model, False, Seconds(0.0), 0, ProbeReport(), changed=False)
    done.set_result(result)
    return done


def _old(link: RunnerLink) -> swap.Old:
    known = {
        life.Phase.READY: swap.Old.READY,
        life.Phase.STOPPED: swap.Old.GONE,
        life.Phase.NO_MODEL: swap.Old.HOPELESS,
    }
    return known.get(link.state.phase, swap.Old.AWAY)


def _new(link: RunnerLink | None, lost: bool, leaving: bool) -> swap.New:
    if link is None:
        return swap.New.LOST if leaving else swap.New.GONE
    kept = next(iter(link.state.aside.values()), None)
    if kept is not None and kept.code == errors.InsufficientMemory.code:
        return swap.New.CRAMPED
    if lost or kept is not None or link.state.restarts:
        return swap.New.LOST
    if link.state.phase is life.Phase.READY:
        return swap.New.READY
    waiting = link.state.phase in (life.Phase.NO_MODEL, life.Phase.BACKOFF)
    return swap.New.LOST if waiting else swap.New.COMING


def _why(link: RunnerLink | None) -> str:
    if link is None:
        return ""
    kept = next(iter(link.state.aside.values()), None)
    return kept.reason if kept is not None else link.state.reason
