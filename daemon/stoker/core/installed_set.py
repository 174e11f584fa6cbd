"""A set that an update installed, as configuration sees it: which file a model's name means.

The set's model serves, under its own name; where configuration has a model of this name,
its settings stay and only the file is another. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from stoker.config.schema import Config, ModelConfig


@dataclass(frozen=True, slots=True)
class InstalledSet:
    """``models``: name → absolute path. Generation 0 = the package's own, nothing installed."""

    generation: int = 0
    models: Mapping[str, str] = field(default_factory=dict)


def served(config: Config, installed: InstalledSet) -> Config:
    """The configuration with the set's models in it, the (only) one of them as default."""
    if not installed.models:
        return config
    known = {model.name: model for model in config.models}
    for name, path in installed.models.items():
        known[name] = replace(known.get(name, ModelConfig(name, path)), path=path)
    taken = {alias for model in known.values() for alias in model.aliases} & set(installed.models)
    models = tuple(
        replace(model, aliases=tuple(a for a in model.aliases if a not in taken))
        for model in known.values()
    )
    return replace(config, models=models, default_model=next(iter(installed.models)))


def model_of(config: Config, installed: InstalledSet) -> ModelConfig | None:
    """What serves when nobody asks for another one; None = no model is configured."""
    whole = served(config, installed)
    wanted = whole.default_model or min((model.name for model in whole.models), default="")
    return next((model for model in whole.models if model.name == wanted), None)
