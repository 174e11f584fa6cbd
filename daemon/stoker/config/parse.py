"""TOML tables in, one ``Config`` out: merged file by file, every key known and in range.

Pure: reading files is ``drivers/config_files``. Errors are ConfigInvalid and name the
file that set the key, so that a slip in a drop-in is not sought in the main file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeVar

from stoker.config.limits import ADAPTER, MODEL, QUOTA, SECTIONS
from stoker.config.readers import GROUP, NAME, Reader
from stoker.config.schema import AdapterConfig, Config, ModelConfig, QuotaConfig
from stoker.errors import ConfigInvalid, StokerError
from stoker.getters import Table

Source = tuple[str, Mapping[str, object]]
"""(file name as people know it, its TOML table)."""

MAX_MODELS: Final = 64
MAX_ADAPTERS: Final = 64
MAX_OVERRIDES: Final = 1024
MAX_SEQUENCES: Final = 64  # as the runner's loader has it
_MAX_DEPTH: Final = 8
_T = TypeVar("_T")


def parse(sources: Sequence[Source]) -> Config:
    """The configuration of these files; a later file wins key by key. ConfigInvalid."""
    merged: dict[str, object] = {}
    origins: dict[str, str] = {}
    for name, table in sources:
        _merge(merged, table, name, "", origins)

    def fail(path: str, reason: str) -> StokerError:
        file = _origin(path, origins)
        where = f"{file}: {path}" if path else file
        return ConfigInvalid(
            f"cannot read configuration: {where}: {reason}",
            details={"path": path, "file": file},
        )

    return _config(Table(merged, fail))


def _config(table: Table) -> Config:
    base = Config()
    sections = {
        name: _section(table.table(name), getattr(base, name), readers)
        for name, readers in SECTIONS.items()
    }
    models, default = _models(table.table("models"))
    adapters = _adapters(table.table("adapters"), [model.name for model in models])
    quotas: QuotaConfig = sections["quotas"]
    users, groups = (_overrides(table.table(name), quotas) for name in ("users", "groups"))
    table.finish()
    config = dataclasses.replace(
        base, default_model=default, models=models, adapters=adapters, users=users, groups=groups,
        **sections,
    )  # fmt: skip
    _cross_check(config, table)
    return config


def _section(table: Table, default: _T, readers: Mapping[str, Reader]) -> _T:
    values = {key: read(table, key, getattr(default, key)) for key, read in readers.items()}
    table.finish()
    return dataclasses.replace(default, **values)  # type: ignore[type-var]


def _models(table: Table) -> tuple[tuple[ModelConfig, ...], str]:
    default = table.text("default", "")
    names = sorted(set(table.keys()) - {"default"})
    if len(names) > MAX_MODELS:
        table.refuse("", f"more than {MAX_MODELS} models")
    models = []
    for name in names:
        if not NAME.fullmatch(name):
            table.refuse(name, "a model's name is 1..64 letters, digits, dots, dashes and lines")
        empty = ModelConfig(name=name, path="")
        entry = table.table(name)
        if not entry.has("path"):
            entry.refuse("path", "missing")
        models.append(_section(entry, empty, MODEL))
    _check_aliases(models, table)
    if default and default not in names:
        known = ", ".join(names) or "none"
        table.refuse("default", f"there is no [models.{default}]; known models: {known}")
    return tuple(models), default


def _adapters(table: Table, models: Sequence[str]) -> tuple[AdapterConfig, ...]:
    names = sorted(table.keys())
    if len(names) > MAX_ADAPTERS:
        table.refuse("", f"more than {MAX_ADAPTERS} adapters")
    found = []
    for name in names:
        if not NAME.fullmatch(name):
            table.refuse(name, "an adapter's name is 1..64 letters, digits, dots, dashes and lines")
        entry = table.table(name)
        for key in ADAPTER:
            if not entry.has(key):
                entry.refuse(key, "missing")
        adapter = _section(entry, AdapterConfig(name, "", ""), ADAPTER)
        if adapter.model not in models:
            known = ", ".join(models) or "none"
            entry.refuse("model", f"there is no [models.{adapter.model}]; known models: {known}")
        found.append(adapter)
    table.finish()
    return tuple(found)


def _check_aliases(models: Sequence[ModelConfig], table: Table) -> None:
    """Each name means one model."""
    taken = {model.name: model.name for model in models}
    for model in models:
        for index, alias in enumerate(model.aliases):
            other = taken.setdefault(alias, model.name)
            if other != model.name or alias == model.name or alias in model.aliases[:index]:
                reason = f"{alias!r} is a name of model {other} already"
                table.table(model.name).refuse(f"aliases[{index}]", reason)


def _overrides(table: Table, quotas: QuotaConfig) -> dict[str, QuotaConfig]:
    """``[users]`` or ``[groups]``: what a table leaves out is as in ``[quotas]``."""
    names = list(table.keys())
    if len(names) > MAX_OVERRIDES:
        table.refuse("", f"more than {MAX_OVERRIDES} tables")
    for name in names:
        if not GROUP.fullmatch(name):
            table.refuse(name, f"{name!r} is not the name of a user or a group")
    found = {name: _section(table.table(name), quotas, QUOTA) for name in names}
    table.finish()
    return found


def _cross_check(config: Config, table: Table) -> None:
    """What no single key can tell."""
    ordered = (
        ("restart", "backoff_first_s", "backoff_cap_s"),
        ("inference", "max_tokens", "max_tokens_limit"),
        ("thermal", "period_min_s", "period_max_s"),
        ("sessions", "max_bytes_per_session", "max_bytes_per_user"),
        ("sessions", "max_bytes_per_user", "max_bytes"),
    )
    for section, low, high in ordered:
        part = getattr(config, section)
        if getattr(part, low) > getattr(part, high):
            # The one that a file sets is the one to look at.
            key = low if table.table(section).has(low) else high
            table.table(section).refuse(
                key, f"{low} {getattr(part, low)} is above {high} {getattr(part, high)}"
            )
    _check_fleet(config, table.table("fleet"))
    together = config.runner.slots + config.runner.parked_slots
    if together > MAX_SEQUENCES:
        table.table("runner").refuse(
            "parked_slots", f"slots and parked_slots are {together}, more than {MAX_SEQUENCES}"
        )
    if config.runner.batch_tokens < config.runner.slots:
        table.table("runner").refuse(
            "batch_tokens",
            f"{config.runner.batch_tokens} is less than slots {config.runner.slots}: "
            "each slot needs room for one token a step",
        )


def _check_fleet(config: Config, table: Table) -> None:
    fleet = config.fleet
    if not fleet.broker:
        return
    if "." in config.device.id:
        table.refuse("broker", f"device.id {config.device.id!r} has a dot, topics have none")
    if bool(fleet.certificate) != bool(fleet.key):
        table.refuse("key" if fleet.certificate else "certificate", "both or none of them")
    if fleet.password_file and not fleet.username:
        table.refuse("username", "a password needs one")


def _merge(
    into: dict[str, object],
    table: Mapping[str, object],
    file: str,
    path: str,
    origins: dict[str, str],
) -> None:
    if path.count(".") >= _MAX_DEPTH:
        raise ConfigInvalid(
            f"cannot read configuration: {file}: {path}: tables nested too deep",
            details={"path": path, "file": file},
        )
    for key, value in table.items():
        here = f"{path}.{key}" if path else key
        origins[here] = file
        old = into.get(key)
        if isinstance(value, Mapping):
            inner: dict[str, object] = dict(old) if isinstance(old, Mapping) else {}
            _merge(inner, value, file, here, origins)
            into[key] = inner
        else:
            into[key] = value


def _origin(path: str, origins: Mapping[str, str]) -> str:
    """The file of the longest known part of ``path``; "defaults" when no file set it."""
    for part in _shorter(path.partition("[")[0]):
        if part in origins:
            return origins[part]
    return "defaults"


def _shorter(path: str) -> Iterator[str]:
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        yield ".".join(parts[:length])
