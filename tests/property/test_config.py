"""Any table gives a Config or ConfigInvalid; files split anyhow mean the same."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stoker.config.changes import diff, flatten
from stoker.config.limits import MODEL, SECTIONS
from stoker.config.parse import parse
from stoker.config.schema import Config, ModelConfig
from stoker.errors import ConfigInvalid

_known = st.sampled_from(sorted({*SECTIONS, "models", *(k for s in SECTIONS.values() for k in s)}))
_keys = _known | st.text(max_size=6)
_junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=4),
    max_leaves=12,
)


def _outcome(*tables: dict[str, Any]) -> Config | ConfigInvalid:
    try:
        return parse([(f"{n}.toml", table) for n, table in enumerate(tables)])
    except ConfigInvalid as error:
        return error


@given(st.lists(st.dictionaries(_keys, _junk, max_size=4), max_size=3))
def test_hostile_tables_never_raise_anything_but_config_invalid(
    tables: list[dict[str, Any]],
) -> None:
    outcome = _outcome(*tables)
    if isinstance(outcome, ConfigInvalid):
        assert outcome.message.startswith("cannot read configuration: ")
        assert outcome.details["file"]


_VALUES: dict[str, Any] = {
    "runner.slots": st.integers(1, 16),
    "runner.threads": st.integers(0, 512),
    "runner.engine": st.sampled_from(["llama", "echo"]),
    "inference.max_tokens": st.integers(1, 8192),
    "inference.deadline_s": st.floats(1, 86400),
    "sampling.temperature": st.floats(0, 5),
    "sampling.seed": st.integers(-1, 2**32 - 1),
    "thermal.actuate": st.booleans(),
    "thermal.wall_c": st.just(0.0) | st.floats(30, 125),
    "daemon.log_level": st.sampled_from(["debug", "info", "warning", "error"]),
    "models.m.context_tokens": st.integers(0, 1 << 20),
    "models.m.mlock": st.booleans(),
}
_settings = st.fixed_dictionaries({"models.m.path": st.just("/m.gguf")}, optional=_VALUES)


def _nested(flat: dict[str, object]) -> dict[str, object]:
    out: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, leaf = path.split(".")
        at = out
        for part in parents:
            at = at.setdefault(part, {})
        at[leaf] = value
    return out


@given(_settings)
def test_what_a_file_sets_is_what_the_configuration_says(flat: dict[str, object]) -> None:
    config = parse([("a", _nested(flat))])
    shown = flatten(config)
    assert {key: shown[key] for key in flat} == flat
    changed = {change.key for change in diff(Config(models=(ModelConfig("m", ""),)), config)}
    assert changed <= set(flat)


@given(_settings, st.data())
def test_it_does_not_matter_over_how_many_files_settings_are_spread(
    flat: dict[str, object], data: st.DataObject
) -> None:
    parts: list[dict[str, object]] = [{}, {}, {}]
    for key, value in flat.items():
        parts[data.draw(st.integers(0, 2))][key] = value
    spread = [(str(n), _nested(part)) for n, part in enumerate(parts)]
    assert parse(spread) == parse([("one", _nested(flat))])


@given(st.sampled_from(sorted(MODEL)), _junk)
def test_hostile_model_tables_are_refused_with_a_path_below_them(key: str, value: object) -> None:
    outcome = _outcome({"models": {"m": {"path": "/x", key: value}}})
    if isinstance(outcome, ConfigInvalid):
        assert str(outcome.details["path"]).startswith("models.m")
