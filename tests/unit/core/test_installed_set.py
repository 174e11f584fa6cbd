"""Which file a model's name means once an update has installed a set."""

from __future__ import annotations

from stoker.config.schema import Config, ModelConfig
from stoker.core.installed_set import InstalledSet, model_of, served

PLAIN = Config(
    default_model="big",
    models=(
        ModelConfig("big", "/m/big", aliases=("chat", "large")),
        ModelConfig("small", "/m/small", context_tokens=512),
    ),
)


def test_without_a_set_configuration_is_as_the_files_have_it() -> None:
    assert served(PLAIN, InstalledSet()) is PLAIN
    assert model_of(PLAIN, InstalledSet()) == PLAIN.models[0]
    assert model_of(Config(), InstalledSet()) is None


def test_a_configured_model_keeps_its_settings_and_gets_the_set_s_file() -> None:
    installed = InstalledSet(3, {"small": "/ota/3/small"})
    whole = served(PLAIN, installed)
    assert whole.default_model == "small"
    assert model_of(PLAIN, installed) == ModelConfig("small", "/ota/3/small", context_tokens=512)
    assert [model.path for model in whole.models] == ["/m/big", "/ota/3/small"]


def test_two_generations_of_a_name_are_two_models_for_a_swap() -> None:
    old, new = (model_of(PLAIN, InstalledSet(n, {"small": f"/ota/{n}/small"})) for n in (1, 2))
    assert old != new


def test_a_set_s_new_name_wins_over_an_alias_of_another_model() -> None:
    whole = served(PLAIN, InstalledSet(1, {"chat": "/ota/1/chat"}))
    names = [(model.name, model.aliases) for model in whole.models]
    assert names == [("big", ("large",)), ("small", ()), ("chat", ())]
