"""Models that do not fit are refused in words; short memory gives back what can be given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.fakes.system import FakeMemory
from tests.unit.core.model_shapes import MIB, SMOLLM2
from tests.unit.services.inference_rig import AllFilesThere, Rig, config

from stoker import errors
from stoker.config.schema import AdapterConfig, Config, MemoryConfig
from stoker.core import fit
from stoker.core import runner_life as life
from stoker.core.pressure import Level
from stoker.events import runner as wire
from stoker.events.memory import Pressure
from stoker.events.model_facts import to_mapping
from stoker.services.fit_load import FitPlan
from stoker.units import Bytes

ANSWER = {"model": to_mapping(SMOLLM2), "lock_limit_bytes": -1}
SHORT, EASY = Pressure(40.0, 2.0), Pressure(0.0, 0.0)


def settings(**memory: Any) -> Config:
    plain = config("big", "small", keep_results_bytes=1 << 20)
    given = MemoryConfig(reserve_bytes=Bytes(0), **memory)
    return replace(plain, memory=given, default_model="big")


def rig(available_mib: int, found: Config | None = None) -> Rig:
    out = Rig(found or settings(), FakeMemory(available_mib * MIB))
    out.launcher.inspected = ANSWER
    return out


def device(found: Rig) -> FakeMemory:
    memory = found.loop._device
    assert isinstance(memory, FakeMemory)
    return memory


def places(found: Rig) -> tuple[int, int]:
    rules = found.loop.desk.queue.state.rules
    return rules.slots, rules.parked_slots


def resizes(found: Rig) -> list[wire.Resize]:
    return [one for one in found.runner.sent if isinstance(one, wire.Resize)]


def test_a_refused_update_of_a_model_leaves_what_is_known_of_the_one_in_use() -> None:
    memory = FakeMemory(4096 * MIB)
    planned, found = FitPlan(memory), settings()
    model = found.models[0]
    planned("q1", model, found, 2, ANSWER)
    known = planned.of(model.name)
    assert known is not None
    memory.available_bytes = MIB
    with pytest.raises(errors.InsufficientMemory):
        planned.whole("q2", replace(model, path="/the/next"), found, 2, ANSWER)
    assert planned.of(model.name) == known


@pytest.mark.parametrize(("mlock", "given_back_mib"), [(False, 0), (True, 92)])
def test_what_a_model_in_use_would_give_back_counts_for_one_that_is_not_here_yet(
    mlock: bool, given_back_mib: int
) -> None:
    memory, found = FakeMemory(4096 * MIB), settings()
    planned = FitPlan(memory)
    model = replace(found.models[0], mlock=mlock)
    planned("q1", model, found, 2, ANSWER)
    known = planned.of(model.name)
    assert known is not None
    memory.available_bytes = 100 * MIB
    own = 100 * MIB + known.plan.parts.anonymous + given_back_mib * MIB
    assert planned.shortage(own - 25 * MIB, 0, found, model.name) is None
    short = planned.shortage(own, 0, found, model.name)
    assert short is not None
    assert short.needed_bytes == own + 24 * MIB
    assert planned.shortage(own, 0, found, "unknown") is None  # nobody knows what it would leave
    unchecked = replace(found, memory=replace(found.memory, fit="off"))
    assert planned.shortage(own, 0, unchecked, model.name) is None


def answer_resize(found: Rig) -> None:
    asked = resizes(found)[-1]
    result = {"slots": asked.slots, "context_tokens": asked.context_tokens, "kv_bytes": 1}
    found.runner.say(wire.Answer(asked.id, result))
    found.turn()


def squeeze(found: Rig, seen: Pressure, seconds: int) -> None:
    device(found).seen = seen
    for _ in range(seconds):
        found.runner.say(wire.Beat(0, 0, 0, 0))
        found.pass_time(1.0)


def test_model_that_fits_is_loaded_as_wished() -> None:
    r = rig(4096)
    r.start()
    load = r.runner.load()
    assert (load.slots, load.context_tokens, load.kv_type) == (3, 4096, "f16")
    use = r.loop.models()[0].memory
    assert use is not None
    assert (use.slots, use.kv_type, use.gave_way) == (2, "f16", "")


def test_model_that_fits_only_smaller_says_what_gave_way() -> None:
    r = rig(220)
    r.start()
    load = r.runner.load()
    assert load.slots * load.context_tokens < 3 * 4096
    assert places(r) == (load.slots, 0)
    use = r.loop.models()[0].memory
    assert use is not None
    assert "instead of" in use.gave_way
    assert r.loop.snapshot.memory == use


def test_adapters_are_counted_when_a_model_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A LoRA file is read into memory whole: what it takes, the context does not get."""
    monkeypatch.setattr(AllFilesThere, "size_bytes", lambda _self, _path: 600 * MIB)
    found = replace(settings(), adapters=(AdapterConfig("a", "/models/a.gguf", "big"),))
    for given, gives_way in ((settings(), False), (found, True)):
        r = rig(1024, given)
        r.start()
        use = r.loop.models()[0].memory
        assert use is not None
        assert bool(use.gave_way) is gives_way


def test_model_that_does_not_fit_is_set_aside_without_a_crash() -> None:
    r = rig(40)
    r.loop.link.step(life.Start(r.loop.now_s()))
    r.turn()
    r.runner.greet()
    r.turn()
    assert not r.runner.of_kind(wire.Load)
    state = r.loop.link.state
    kept = state.aside["big"]
    assert kept.code == "insufficient-memory"
    assert "cannot load model big: it needs" in kept.reason
    assert state.failures == 0
    assert state.crashes == {}
    assert next(m for m in r.loop.models() if m.name == "big").reason == kept.reason


def test_callers_hear_insufficient_memory_and_it_is_tried_again_soon() -> None:
    r = rig(40, replace(settings(), models=settings().models[:1]))
    r.loop.link.step(life.Start(r.loop.now_s()))
    r.turn()
    r.runner.greet()
    r.turn()
    r.runner.die(status=0)
    r.turn()
    assert r.loop.link.state.phase is life.Phase.NO_MODEL
    error = r.ask().future.exception(0)
    assert isinstance(error, errors.InsufficientMemory)
    assert "weights alone" in error.message
    device(r).available_bytes = 4096 * MIB
    r.pass_time(61.0)
    r.make_ready()
    assert r.ask().future.result(0)


def test_strict_refuses_what_auto_would_shrink() -> None:
    r = rig(220, settings(fit="strict"))
    r.loop.link.step(life.Start(r.loop.now_s()))
    r.turn()
    r.runner.greet()
    r.turn()
    assert "big" in r.loop.link.state.aside


def test_unknown_facts_load_as_configured() -> None:
    for odd in ({}, {"model": {"layers": -1}}, {"model": "x"}):
        r = rig(40)
        r.launcher.inspected = odd
        r.start()
        load = r.runner.load()
        assert (load.slots, load.context_tokens, load.kv_type) == (3, 0, "f16")


def test_pressure_shrinks_an_idle_context_and_calm_grows_it_back() -> None:
    r = rig(4096)
    r.start()
    squeeze(r, SHORT, 3)
    assert r.loop.watch.level is Level.TIGHT
    squeeze(r, SHORT, 10)
    first = resizes(r)[0]
    assert first.slots == 2  # the parked one goes before the context
    answer_resize(r)
    squeeze(r, SHORT, 12)
    answer_resize(r)
    assert r.loop.link.loaded is not None
    assert r.loop.link.loaded.context_tokens == resizes(r)[-1].context_tokens < 4096
    shown = r.loop.models()[0].memory
    assert shown is not None
    assert "memory is short" in shown.gave_way
    count = len(resizes(r))
    squeeze(r, EASY, 320)
    assert r.loop.snapshot.memory_level == "calm"
    assert len(resizes(r)) == count
    for _ in range(300):
        squeeze(r, EASY, 1)
        if len(resizes(r)) > count:
            break
    assert (resizes(r)[-1].slots, resizes(r)[-1].context_tokens) == (3, 4096)
    answer_resize(r)
    assert places(r) == (2, 1)
    squeeze(r, EASY, 700)
    assert len(resizes(r)) == count + 1


def test_context_does_not_grow_back_while_it_would_not_fit() -> None:
    r = rig(4096)
    r.start()
    squeeze(r, SHORT, 14)
    answer_resize(r)
    count = len(resizes(r))
    device(r).available_bytes = 20 * MIB
    squeeze(r, EASY, 700)
    assert len(resizes(r)) == count


def test_nothing_shrinks_while_somebody_is_answered() -> None:
    r = rig(4096)
    r.start()
    job = r.ask()
    squeeze(r, SHORT, 30)
    assert not resizes(r)
    r.runner.stream(job.id, "x", done=True)
    squeeze(r, SHORT, 2)
    assert len(resizes(r)) == 1


def test_results_go_when_memory_gets_short() -> None:
    r = rig(4096)
    r.start()
    job = r.ask()
    r.runner.stream(job.id, "x", done=True)
    r.turn()
    job.read()
    job.close()
    r.turn()
    squeeze(r, SHORT, 3)
    assert ("forgotten", job.id) in r.heard


def test_large_requests_are_busy_while_small_ones_are_taken() -> None:
    r = rig(4096)
    r.start()
    squeeze(r, SHORT, 3)
    error = r.ask("x" * 70_000).future.exception(0)
    assert isinstance(error, errors.Busy)
    assert error.details["retry_after_ms"] == 30_000
    assert r.ask("hello").future.result(0)


def test_busy_runner_keeps_its_places_and_is_asked_again() -> None:
    r = rig(4096)
    r.start()
    squeeze(r, SHORT, 14)
    r.runner.say(wire.Failed(resizes(r)[-1].id, "busy", "cannot resize: jobs are running"))
    r.turn()
    assert places(r) == (2, 1)
    squeeze(r, SHORT, 12)
    assert len(resizes(r)) == 2


def test_runner_without_any_context_is_replaced() -> None:
    r = rig(4096)
    r.start()
    squeeze(r, SHORT, 14)
    r.runner.say(wire.Failed(resizes(r)[-1].id, "insufficient-memory", "no room"))
    r.turn()
    assert r.loop.link.state.phase is life.Phase.CLOSING


def test_missing_pressure_is_said_once_and_free_memory_decides(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    found = settings()
    reserve = MemoryConfig(reserve_bytes=Bytes(64 * MIB))
    r = rig(4096, replace(found, memory=reserve))
    r.start()
    device(r).seen = None
    for _ in range(5):
        r.pass_time(1.0)
    assert caplog.text.count("tells no memory pressure") == 1
    device(r).available_bytes = 30 * MIB
    for _ in range(3):
        r.pass_time(1.0)
    assert r.loop.watch.level is Level.TIGHT


def test_lock_that_cannot_hold_is_said(caplog: pytest.LogCaptureFixture) -> None:
    found = settings()
    models = tuple(replace(model, mlock=True) for model in found.models)
    r = rig(4096, replace(found, models=models))
    r.launcher.inspected = ANSWER | {"lock_limit_bytes": 8 * MIB}
    r.start()
    assert "may lock 8 MiB of 94 MiB" in caplog.text


def test_wishes_follow_the_configuration() -> None:
    from stoker.services.fit_load import wishes_of

    found = replace(settings(), memory=MemoryConfig(fit="strict", least_context_tokens=512))
    wishes = wishes_of(
        replace(found.models[0], context_tokens=2048, kv_type="q8_0"), found, lambda _: -1
    )
    assert isinstance(wishes, fit.Wishes)
    assert (wishes.mode, wishes.least_context, wishes.reserve_bytes) == ("strict", 512, 64 * MIB)
    assert (wishes.context_tokens, wishes.kv_type) == (2048, "q8_0")
