"""A set that an update installed, as configuration sees it: which files its names mean.

The set's model serves, under its own name; where configuration has a model of this name,
its settings stay and only the file is another. Its adapters and libraries go before the
configured ones. Its policy is one of the files that configuration is read from. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from stoker.config.schema import AdapterConfig, Config, ModelConfig


@dataclass(frozen=True, slots=True)
class InstalledSet:
    """Absolute paths. Generation 0 = the package's own, nothing installed."""

    generation: int = 0
    models: Mapping[str, str] = field(default_factory=dict)  # by name
    adapters: tuple[AdapterConfig, ...] = ()
    libraries: str = ""  # folder of a runtime; "" = the configured one
    policy: str = ""


def served(config: Config, installed: InstalledSet) -> Config:
    """The configuration with the set in it, its (only) model as default."""
    if not (installed.models or installed.adapters or installed.libraries):
        return config
    fresh = {item.name: item for item in config.adapters}
    fresh |= {item.name: item for item in installed.adapters}
    libraries = installed.libraries or config.runner.libraries
    config = replace(
        config,
        adapters=tuple(fresh[name] for name in sorted(fresh)),
        runner=replace(config.runner, libraries=libraries),
    )
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


def adapters_of(config: Config, model: str) -> tuple[AdapterConfig, ...]:
    """Those that are loaded with a model."""
    return tuple(item for item in config.adapters if item.model == model)


def on_trial(now: Config, fresh: Config, model: str) -> dict[str, AdapterConfig]:
    """The model's adapters that ``fresh`` brings or changes, by the names under which they are
    tried: their own stay those of the files in use until then.
    """
    known = set(adapters_of(now, model))
    return {
        f"{item.name}~trial": replace(item, name=f"{item.name}~trial")
        for item in adapters_of(fresh, model)
        if item not in known
    }
