"""Watches how short memory is and gives back what can be given, on the loop's thread.

Decides nothing: ``core.pressure`` says when, ``core.fit`` how far. Cached prefixes live in the
one buffer of the key-value cache: only a smaller context gives that memory back.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final, Protocol

from stoker import errors
from stoker.config.schema import Config
from stoker.core import fit, pressure
from stoker.core.pressure import Level
from stoker.events.inference import Ask
from stoker.ports.system import Memory
from stoker.services.fit_load import FitPlan
from stoker.services.job_queue import text_bytes
from stoker.services.runner_queries import Answered
from stoker.units import Seconds

POLL_S: Final = Seconds(1.0)
_LARGE_BYTES: Final = {Level.TIGHT: 64 << 10, Level.CRITICAL: 4 << 10}

_log = logging.getLogger(__name__)


class Hands(Protocol):
    """What the watch may do; the inference loop does it."""

    def serving(self) -> str:
        """The model that answers now; "" = none is ready."""

    def pid(self) -> int: ...

    def idle(self) -> bool:
        """No job runs or waits."""

    def evict(self) -> int:
        """Forget the results that can still be fetched; how many."""

    def room(self, slots: int, parked_slots: int) -> None:
        """How many jobs may be in the runner from now on."""

    def resize(self, plan: fit.Plan) -> Answered: ...

    def resized(self, result: dict[str, object]) -> None:
        """The runner's own numbers of the new context."""

    def restart(self) -> None:
        """The runner has no context any more."""


class MemoryWatch:
    def __init__(
        self, config: Config, memory: Memory | None, fitted: FitPlan, hands: Hands
    ) -> None:
        self._memory, self._fitted, self._hands = memory, fitted, hands
        self._state = pressure.State()
        self._looked_s = Seconds(float("-inf"))
        self._resizing = False
        self._least = ""  # the model whose context is as small as it gets
        self._told = False  # that nobody tells the pressure
        self.configure(config)

    def configure(self, config: Config) -> None:
        self._rules = pressure.Rules(
            tight_pct=config.memory.tight_pct,
            critical_pct=config.memory.critical_pct,
            reserve_bytes=config.memory.reserve_bytes,
            calm_after_s=config.memory.calm_after_s,
            grow_after_s=config.memory.grow_after_s,
        )

    @property
    def level(self) -> Level:
        return self._state.level

    def refusal(self, ask: Ask) -> errors.StokerError | None:
        """Why a large request is not taken now: its text costs memory in every process."""
        most = _LARGE_BYTES.get(self.level)
        size = text_bytes(ask)
        if most is None or size <= most:
            return None
        return errors.Busy(
            f"cannot accept job: memory is short ({self.level.word}) and the request has "
            f"{size} bytes, more than {most}",
            hint="ask again later, or ask for less",
            details={"retry_after_ms": int(1000 * self._rules.calm_after_s)},
        )

    def tick(self, now: Seconds) -> None:
        """A look once a second; what it leads to happens at once."""
        if self._memory is None or now - self._looked_s < POLL_S:
            return
        self._looked_s = now
        before = self._state.level
        self._state, actions = pressure.step(self._state, self._look(now), self._rules)
        if self._state.level is not before:
            level = logging.INFO if self._state.level < before else logging.WARNING
            _log.log(level, "memory is %s, was %s", self._state.level.word, before.word)
        for action in actions:
            match action:
                case pressure.Evict():
                    _log.warning("memory is short: %d results forgotten", self._hands.evict())
                case pressure.Shrink():
                    self._shrink()
                case pressure.Grow():
                    self._grow()

    def _look(self, now: Seconds) -> pressure.Look:
        assert self._memory is not None
        pid, model = self._hands.pid(), self._hands.serving()
        seen = self._memory.pressure(pid)
        if seen is None and not self._told:
            self._told = True
            _log.info("this kernel tells no memory pressure (PSI): going by free memory alone")
        fitted = self._fitted.of(model)
        return pressure.Look(
            now,
            seen,
            self._memory.facts(pid).available_bytes,
            idle=fitted is not None and not self._resizing and self._hands.idle(),
            shrunk=fitted is not None and fitted.shrunk,
            least=model == self._least,
        )

    def _shrink(self) -> None:
        model = self._hands.serving()
        fitted = self._fitted.of(model)
        if fitted is None:
            return
        smaller = fit.smaller(fitted.facts, fitted.wishes, fitted.plan)
        if smaller is None:
            self._least = model
            _log.warning("memory is short, and the context is as small as it may be")
        else:
            self._resize(model, smaller)

    def _grow(self) -> None:
        """As large as was loaded first, if that fits by now, else not yet."""
        model = self._hands.serving()
        fitted = self._fitted.of(model)
        if fitted is None or self._memory is None:
            return
        more = fitted.full.parts.total - fitted.plan.parts.total
        if self._memory.facts(self._hands.pid()).available_bytes - more < (
            2 * self._rules.reserve_bytes
        ):
            return
        self._least = ""
        self._resize(model, fitted.full)

    def _resize(self, model: str, plan: fit.Plan) -> None:
        fitted = self._fitted.of(model)
        assert fitted is not None
        before = fitted.plan
        self._resizing = True
        fewer = min(before.slots, plan.slots), min(before.parked_slots, plan.parked_slots)
        self._hands.room(*fewer)

        def done(answer: Answered) -> None:
            self._resizing = False
            if self._fitted.of(model) is not fitted:
                return  # another load came between
            error = answer.exception()
            if error is None:
                self._fitted.changed(model, plan)
                self._hands.resized(dict(answer.result()))
                self._hands.room(plan.slots, plan.parked_slots)
                _log.warning("context made anew: %s", replace(plan, said=()).text())
                return
            _log.warning("context not made anew: %s", error)
            self._hands.room(before.slots, before.parked_slots)
            if isinstance(error, errors.ModelUnavailable | errors.InsufficientMemory):
                self._hands.restart()

        self._hands.resize(plan).add_done_callback(done)
