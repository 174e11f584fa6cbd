"""What changed between two configurations, and what of it can wait for no restart."""

from __future__ import annotations

from dataclasses import replace

from stoker.config.changes import LIVE, Change, diff, flatten
from stoker.config.schema import Config, ModelConfig, QuotaConfig
from stoker.units import Seconds

OLD = Config(models=(ModelConfig("a", "/a"),))


def test_equal_configurations_do_not_differ() -> None:
    assert diff(OLD, Config(models=(ModelConfig("a", "/a"),))) == ()


def test_changes_are_named_as_the_files_spell_them() -> None:
    new = replace(
        OLD,
        default_model="b",
        models=(ModelConfig("a", "/other"), ModelConfig("b", "/b")),
        inference=replace(OLD.inference, deadline_s=Seconds(5.0)),
    )
    changes = {change.key: change for change in diff(OLD, new)}
    assert changes["models.a.path"] == Change("models.a.path", "/a", "/other")
    assert changes["models.default"].new == "b"
    assert changes["models.b.path"].old is None
    assert not changes["inference.deadline_s"].needs_restart
    assert changes["models.b.path"].needs_restart
    assert "models.a.mmap" not in changes


def test_a_removed_model_is_a_change() -> None:
    keys = [change.key for change in diff(OLD, Config())]
    assert "models.a.path" in keys


def test_every_live_entry_stands_for_a_real_key() -> None:
    some = {"somebody": QuotaConfig()}
    keys = flatten(Config(users=some, groups=some))
    for entry in LIVE:
        assert any(key == entry or key.startswith(entry) for key in keys), entry
        assert entry.endswith(".") or entry in keys, entry


def test_a_name_that_merely_begins_like_a_live_key_needs_a_restart() -> None:
    assert Change("runner.slots", 1, 2).needs_restart
    assert Change("sampling_extra.x", 1, 2).needs_restart
