"""Which model a request means, and when waiting requests bring another one in.

Pure. Names and aliases in, a configured name out; by policy a swap to the model that
somebody waits for, or none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from stoker.config.schema import ModelConfig
from stoker.units import Seconds

SHORTEST_STAY_S: Final = Seconds(10.0)  # two users of two models must not swap all the time


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job that waits, in the order of arrival. ``model`` "" = whichever is loaded."""

    model: str


def resolve(name: str, models: Iterable[ModelConfig]) -> str:
    """The configured name that ``name`` or an alias means; "" when there is none."""
    for model in models:
        if name == model.name or name in model.aliases:
            return model.name
    return ""


def next_model(
    policy: str,
    serving: str,
    waiting: Iterable[Waiting],
    *,
    running: int,
    stayed_s: Seconds,
) -> str:
    """The model to swap to now; "" = none.

    ``never``: only administrators swap. ``when-idle``: once nobody has work for the model that
    serves. ``on-demand``: as soon as somebody waits for another one, first come first served.
    """
    jobs = tuple(waiting)
    others = [job.model for job in jobs if job.model not in ("", serving)]
    if policy == "never" or not others:
        return ""
    if policy == "when-idle":
        idle = not running and len(others) == len(jobs)
        return others[0] if idle else ""
    idle = not running and len(others) == len(jobs)
    return others[0] if idle or stayed_s >= SHORTEST_STAY_S else ""
