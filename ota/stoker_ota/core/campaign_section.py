"""A campaign as the ``[campaign]`` section of its groups' desired states says it. Pure.

Devices read ``id``, ``percent`` and ``paused``. The rest is for the operator's tool: with it a
ledger that was lost is made again from what the broker keeps, whose signature counts.
"""

from __future__ import annotations

from collections.abc import Mapping

from stoker_ota.core import campaign
from stoker_ota.core.campaign import PHASES, Plan, State
from stoker_ota.core.fields import MAX_VERSION
from stoker_ota.errors import BadDocument, OtaError
from stoker_ota.getters import Table

_RUNNING = (campaign.RUNNING, campaign.WAITING)


def section(plan: Plan, state: State) -> dict[str, object]:
    """What is published. After a success those that come late take part, after an abort nobody."""
    return {
        "id": plan.id,
        "percent": campaign.percent(plan, state),
        "paused": state.phase in (campaign.PAUSED, campaign.ABORTED),
        "phase": campaign.RUNNING if state.phase in _RUNNING else state.phase,
        "turn": state.turn,
        "step": state.at,
        "groups": list(plan.groups),
        "deployment": plan.deployment,
        "version": plan.version,
        "steps": list(plan.steps),
        "success": plan.success,
        "abort": plan.abort,
        "soak_s": plan.soak_s,
        "window": plan.window,
        "lost_s": plan.lost_s,
    }


def parse(values: Mapping[str, object]) -> tuple[Plan, State] | None:
    """None for a section that a hand has written, for devices only. BadDocument."""
    if "turn" not in values:
        return None

    def fail(path: str, reason: str) -> OtaError:
        return BadDocument(f"cannot read the campaign: {path}: {reason}", details={"path": path})

    table = Table(values, fail)
    table.number("percent", low=0, high=100)
    table.flag("paused")
    steps = table.raw("steps")
    numbers = steps if isinstance(steps, list) else []
    if not numbers or any(isinstance(n, bool) or not isinstance(n, int | float) for n in numbers):
        table.refuse("steps", "expected a list of numbers")
    plan = Plan(
        table.text("id", max_bytes=64),
        table.texts("groups", max_items=campaign.MAX_GROUPS),
        table.text("deployment", max_bytes=128),
        table.whole("version", low=1, high=MAX_VERSION),
        tuple(float(n) for n in numbers),
        table.number("success", low=0, high=100),
        table.number("abort", low=0, high=100),
        table.whole("soak_s", low=0, high=MAX_VERSION),
        table.text("window", max_bytes=32),
        table.whole("lost_s", low=0, high=MAX_VERSION),
    )
    try:
        campaign.checked(plan)
    except OtaError as error:
        raise BadDocument(error.message) from error
    state = State(
        table.choice("phase", PHASES),
        table.whole("step", low=0, high=len(plan.steps) - 1),
        table.whole("turn", low=1, high=MAX_VERSION),
    )
    table.finish()
    return plan, state
