"""Other adapters for the runner that serves: what it takes, what stays, what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.fakes.system import FakeMemory
from tests.unit.services.inference_rig import Rig, config

from stoker import errors
from stoker.config.schema import AdapterConfig, Config
from stoker.core.swap import Phase, State
from stoker.events.runner import Adapt, Adapter, Answer, Load
from stoker.services.adapter_change import ADAPTERS, MODEL, NOTHING

TERSE = AdapterConfig("terse", "/a/terse", "tiny")
OTHERS = AdapterConfig("odd", "/a/odd", "big")


def _with(*adapters: AdapterConfig) -> Config:
    return replace(config("tiny", "big"), adapters=adapters, default_model="tiny")


@pytest.fixture
def rig() -> Rig:
    made = Rig(_with())
    made.start()
    return made


def _answer(rig: Rig, **unusable: str) -> Adapt:
    rig.turn()
    (request,) = rig.runner.of_kind(Adapt)
    assert isinstance(request, Adapt)
    rig.runner.say(Answer(request.id, {"unusable": unusable}))
    rig.turn()
    return request


def test_adapters_are_taken_without_a_load_and_come_back_with_the_next_runner(rig: Rig) -> None:
    loads = len(rig.runner.of_kind(Load))
    done = rig.service.adapt(_with(TERSE, OTHERS), keep=True)
    assert _answer(rig).adapters == (Adapter("terse", "/a/terse"),)  # its own model's only
    assert done.result(0) is None
    assert len(rig.runner.of_kind(Load)) == loads
    rig.runner.die(9)
    rig.pass_time(1.0)
    rig.make_ready()
    (load,) = rig.runner.of_kind(Load)
    assert isinstance(load, Load)
    assert load.adapters == (Adapter("terse", "/a/terse"),)


def test_those_on_trial_are_forgotten_with_the_runner(rig: Rig) -> None:
    done = rig.service.adapt(_with(TERSE), keep=False)
    _answer(rig)
    assert done.result(0) is None
    assert rig.loop.link.config.adapters == ()


def test_one_that_cannot_be_used_is_named_and_nothing_is_kept(rig: Rig) -> None:
    done = rig.service.adapt(_with(TERSE), keep=True)
    _answer(rig, terse="another shape")
    with pytest.raises(errors.ModelUnavailable, match="terse: another shape"):
        done.result(0)
    assert rig.loop.link.config.adapters == ()


def test_while_the_model_is_being_changed_it_is_busy(rig: Rig) -> None:
    rig.loop.runners.swap = State(Phase.STAGING, "big")
    done = rig.service.adapt(_with(TERSE), keep=True)
    while rig.loop.posted:
        rig.loop.posted.popleft()()
    with pytest.raises(errors.Busy):
        done.result(0)


def test_the_difference_says_what_the_serving_runner_can_take(rig: Rig) -> None:
    difference = rig.loop.adapters.difference
    tiny, big = _with().models
    assert (tiny.name, big.name) == ("tiny", "big")
    libraries = replace(_with(), runner=replace(_with().runner, libraries="/lib"))
    assert difference(tiny, _with()) == NOTHING
    assert difference(tiny, _with(OTHERS)) == NOTHING
    assert difference(tiny, _with(TERSE)) == ADAPTERS
    assert difference(tiny, libraries) == MODEL
    assert difference(big, _with()) == MODEL
    assert difference(replace(tiny, path="/other"), _with()) == MODEL


def test_without_room_for_it_beside_what_runs_an_adapter_takes_a_new_runner() -> None:
    rig = Rig(_with(), FakeMemory(available_bytes=64 << 20))
    rig.start()
    assert rig.loop.adapters.difference(_with().models[0], _with(TERSE)) == MODEL


def test_other_libraries_come_with_a_second_runner_and_no_model_is_blamed_for_them() -> None:
    rig = Rig(_with(), FakeMemory())
    rig.start()
    wanted = replace(_with(TERSE), runner=replace(_with().runner, libraries="/lib"))
    tiny = wanted.models[0]
    rig.service.swap(tiny, None, wanted)
    rig.turn()
    assert rig.launcher.libraries == ["", "/lib"]
    assert rig.loop.link.config.runner.libraries == ""
    rig.runner.die(11)  # the new one
    rig.turn()
    assert rig.loop.link.state.aside == {}  # the model is not to blame
