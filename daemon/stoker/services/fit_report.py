"""``stokerd --fit``: what a model file would be given on this device, without loading it.

Asks a runner for the file's facts and the planner for the rest; for people and for programs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Final

from stoker.config.schema import Config, ModelConfig
from stoker.core import fit
from stoker.errors import ModelUnavailable
from stoker.events import model_facts
from stoker.events import runner as wire
from stoker.ports.runner import RunnerProcess
from stoker.ports.system import Memory
from stoker.services.fit_load import facts_of, wishes_of
from stoker.services.runner_answer import answer
from stoker.units import Seconds

TIMEOUT_S: Final = Seconds(30.0)


def report(
    runner: RunnerProcess,
    memory: Memory,
    model: ModelConfig,
    config: Config,
    size: Callable[[str], int],
) -> dict[str, object]:
    """Facts, memory and plan as plain values; ``size`` gives the bytes of a file, -1 = none.

    Raises StokerError: no such file, no model.
    """
    runner.send(wire.Inspect("fit", model.path))
    facts = facts_of(answer(runner, wire.Answer, TIMEOUT_S, "inspect the model").result)
    if facts is None:
        raise ModelUnavailable(f"cannot plan model {model.path}: the runner gave no facts")
    device = memory.facts()
    wishes = wishes_of(model, config, size)
    found = fit.plan(facts, device, wishes)
    out: dict[str, object] = {
        "model": model.name,
        "path": model.path,
        "available_bytes": device.available_bytes,
        "source": device.source,
        "adapter_bytes": wishes.adapter_bytes,
        "facts": model_facts.to_mapping(facts),
        "fits": isinstance(found, fit.Plan),
    }
    if isinstance(found, fit.Refusal):
        return out | {"reason": found.reason, "hint": found.hint}
    parts = {**asdict(found.parts), "total": found.parts.total}
    return out | {"plan": {**asdict(found), "parts": parts}, "reason": "; ".join(found.said)}


def lines(found: dict[str, object]) -> list[str]:
    """The same for people."""
    plan = found.get("plan")
    if not isinstance(plan, dict):
        return [str(found["reason"]), f"hint: {found['hint']}"]
    parts = plan["parts"]
    sizes = {name: fit.amount(parts[name]) for name in parts}
    rows = [
        f"model {found['model']}: {plan['slots']} slots + {plan['parked_slots']} parked of "
        f"{plan['context_tokens']} tokens, {plan['kv_type']} keys and values",
        f"  expected   {sizes['total']}, {fit.amount(float(str(found['available_bytes'])))} are "
        f"free ({found['source']})",
        f"  weights    {sizes['mapped']} mapped, {sizes['weights']} of the process's own",
        f"  keys and values  {sizes['kv']}, work buffers {sizes['compute']}, "
        f"saving one conversation {sizes['saving']}, the rest {sizes['overhead']}",
    ]
    if found["adapter_bytes"]:
        rows.append(f"  adapters   {fit.amount(float(str(found['adapter_bytes'])))} beside it")
    if found["reason"]:
        rows.append(f"  does not fit as configured: {found['reason']}")
    return rows
