"""The load path's plan: facts of the file and of the device in, a Load that fits out.

Decides nothing itself (``core.fit`` does); it remembers what was decided for each model, for
listings and for the memory watch. Owned by the inference loop's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from stoker.config.schema import Config, ModelConfig
from stoker.core import fit
from stoker.errors import InsufficientMemory, StokerError
from stoker.events import model_facts
from stoker.events import runner as wire
from stoker.events.inference import MemoryUse
from stoker.events.model_facts import ModelFacts
from stoker.ports.system import Memory
from stoker.services.load_path import Facts
from stoker.services.runner_requests import load_request
from stoker.units import Bytes

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fitted:
    """``full`` is what was loaded; ``plan`` what there is now, after any shrinking."""

    facts: ModelFacts
    wishes: fit.Wishes
    full: fit.Plan
    plan: fit.Plan

    @property
    def shrunk(self) -> bool:
        return self.plan.cells < self.full.cells

    def use(self) -> MemoryUse:
        """For listings."""
        plan, said = self.plan, "; ".join(self.full.said)
        if self.shrunk:
            short = "made smaller while memory is short"
            said = f"{said}; {short}" if said else short
        return MemoryUse(
            plan.context_tokens,
            plan.slots,
            plan.kv_type,
            Bytes(plan.parts.kv),
            Bytes(plan.parts.total),
            said,
        )


class FitPlan:
    """A ``load_path.PlanLoad``. ``pid`` gives a process of the group that the runner is in,
    ``size`` the bytes of a file (-1 = it is not there).
    """

    def __init__(
        self,
        memory: Memory | None,
        pid: Callable[[], int] = lambda: 0,
        size: Callable[[str], int] = lambda _path: -1,
    ) -> None:
        self._memory, self._pid, self._size = memory, pid, size
        self._fitted: dict[str, Fitted] = {}

    def of(self, model: str) -> Fitted | None:
        """What was planned at the model's last load; None = nothing was, or it was refused."""
        return self._fitted.get(model)

    def changed(self, model: str, plan: fit.Plan) -> None:
        """The runner made its context anew."""
        self._fitted[model] = replace(self._fitted[model], plan=plan)

    def __call__(
        self, load_id: str, model: ModelConfig, config: Config, threads: int, facts: Facts
    ) -> wire.Load:
        request = load_request(load_id, model, config, threads)
        self._fitted.pop(model.name, None)
        known = facts_of(facts)
        if self._memory is None or known is None:
            return request
        wishes = wishes_of(model, config, self._size)
        found = fit.plan(known, self._memory.facts(self._pid()), wishes)
        if isinstance(found, fit.Refusal):
            raise refused(found)
        self._fitted[model.name] = Fitted(known, wishes, found, found)
        self._say(model, found, facts, known)
        return replace(
            request,
            context_tokens=found.context_tokens,
            slots=found.slots + found.parked_slots,
            cached_prefixes=found.cached_prefixes,
            cache_tokens=found.cache_tokens,
            kv_type=found.kv_type,
        )

    def whole(
        self, load_id: str, model: ModelConfig, config: Config, threads: int, facts: Facts
    ) -> wire.Load:
        """The same for a second runner beside the first: nothing may give way for a neighbour
        that soon goes. The first may have the same name (an update of it): a refusal leaves
        what is known of that one.
        """
        before = self._fitted.get(model.name)
        try:
            request = self(load_id, model, config, threads, facts)
            fitted = self._fitted.get(model.name)
            if fitted is not None and fitted.full.said:
                raise InsufficientMemory(f"cannot load {model.name} beside the model in use: "
                                         + "; ".join(fitted.full.said))  # fmt: skip
        except InsufficientMemory:
            if before is not None:
                self._fitted[model.name] = before
            raise
        return request

    def shortage(
        self, file_bytes: int, adapter_bytes: int, config: Config, serving: str
    ) -> fit.Shortage | None:
        """Why a model that is still to be fetched fits neither beside ``serving`` ("" = none)
        nor in its place; None = it may.
        """
        fitted = self._fitted.get(serving)
        if self._memory is None or config.memory.fit == "off" or (serving and fitted is None):
            return None  # nobody counts, or nobody knows what would be given back
        held = 0
        if fitted is not None:  # pages of a file count as available, unless they are locked
            parts = fitted.plan.parts
            held = parts.total if fitted.wishes.mlock else parts.anonymous
        return fit.shortage(
            file_bytes,
            self._memory.facts(self._pid()),
            beside_bytes=adapter_bytes,
            reserve_bytes=config.memory.reserve_bytes,
            held_bytes=held,
        )

    def _say(self, model: ModelConfig, found: fit.Plan, facts: Facts, known: ModelFacts) -> None:
        _log.info("model %s: %s expected", model.name, found.text())
        if found.said:
            said = "; ".join(found.said)
            _log.warning("model %s does not fit as configured: %s", model.name, said)
        limit = facts.get("lock_limit_bytes", -1)
        if model.mlock and isinstance(limit, int) and 0 <= limit < known.file_bytes:
            _log.warning(
                "model %s cannot be locked in memory: the runner may lock %s of %s "
                "(LimitMEMLOCK of its unit, 'ulimit -l')",
                model.name, fit.amount(limit), fit.amount(known.file_bytes),
            )  # fmt: skip


def wishes_of(model: ModelConfig, config: Config, size: Callable[[str], int]) -> fit.Wishes:
    """The settings that decide about memory; ``size`` as in FitPlan."""
    runner = config.runner
    adapters = (item.path for item in config.adapters if item.model == model.name)
    return fit.Wishes(
        model=model.name,
        context_tokens=model.context_tokens,
        slots=runner.slots,
        parked_slots=runner.parked_slots,
        cached_prefixes=runner.cached_prefixes,
        cache_tokens=runner.cache_tokens,
        kv_type=model.kv_type,
        batch_tokens=runner.batch_tokens,
        flash_attention=model.flash_attention,
        mmap=model.mmap,
        mlock=model.mlock,
        least_context=config.memory.least_context_tokens,
        state_bytes=runner.state_bytes if runner.cached_prefixes else 0,
        reserve_bytes=config.memory.reserve_bytes,
        adapter_bytes=sum(max(size(path), 0) for path in adapters),
        mode=config.memory.fit,
    )


def facts_of(inspected: Facts) -> ModelFacts | None:
    """None when the runner could not say, or says what we do not understand."""
    model = inspected.get("model")
    if not isinstance(model, dict):
        return None
    try:
        return model_facts.of_mapping(model)
    except StokerError as error:
        _log.warning("%s", error.message)
        return None


def refused(found: fit.Refusal) -> InsufficientMemory:
    """The refusal as the typed error that sets the model aside."""
    return InsufficientMemory(
        f"{found.reason}; {found.hint}",
        hint="'stokerd --fit MODEL' shows the plan; see [memory] in stoker.toml",
        details={"needed_bytes": found.needed_bytes, "available_bytes": found.available_bytes},
    )
