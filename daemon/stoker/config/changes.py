"""What differs between two configurations, and what of it needs a restart to take effect.

Decides only; ``main`` applies. A key without a word here needs a restart: forgetting
one may cost a restart, never a setting that silently does nothing.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

from stoker.config.schema import Config

LIVE: Final = (
    "daemon.log_level",
    "device.region",
    "device.labels",
    "swap.",
    "restart.",
    "inference.",
    "sampling.",
    "sessions.",
    "thermal.wall_c",
    "thermal.law",
    "thermal.margin_k",
    "thermal.gain_w_per_k",
    "thermal.reset_s",
    "access.",
    "quotas.",
    "users.",
    "groups.",
)
"""Keys, and sections with a closing dot, that the running daemon takes over at once."""


@dataclass(frozen=True, slots=True)
class Change:
    """One key; None on a side = the key (a model) is not there."""

    key: str
    old: object
    new: object

    @property
    def needs_restart(self) -> bool:
        return not self.key.startswith(LIVE)


def diff(old: Config, new: Config) -> tuple[Change, ...]:
    """The keys whose values differ, by name."""
    before, after = flatten(old), flatten(new)
    keys = sorted(before.keys() | after.keys())
    changed = (Change(key, before.get(key), after.get(key)) for key in keys)
    return tuple(change for change in changed if change.old != change.new)


def flatten(config: Config) -> dict[str, object]:
    """Every setting by its full name, as the files spell it."""
    out: dict[str, object] = {"models.default": config.default_model}
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if dataclasses.is_dataclass(value):
            out.update(_fields(item.name, value))
    for name, some in (("users", config.users), ("groups", config.groups)):
        for who, quota in some.items():
            out.update(_fields(f"{name}.{who}", quota))
    tables: list[tuple[str, object]] = [(f"models.{model.name}", model) for model in config.models]
    tables += [(f"adapters.{item.name}", item) for item in config.adapters]
    for prefix, table in tables:
        out.update(_fields(prefix, table))
        del out[f"{prefix}.name"]
    return out


def _fields(prefix: str, value: object) -> dict[str, object]:
    names = (item.name for item in dataclasses.fields(value))  # type: ignore[arg-type]
    return {f"{prefix}.{name}": getattr(value, name) for name in names}
