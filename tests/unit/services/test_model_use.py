"""Which model a request gets, and a model that sleeps while nobody asks."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
from tests.fakes.system import FakeMemory, MemoryStateFile
from tests.unit.services.inference_rig import ALICE, Asked, Rig
from tests.unit.services.test_model_swap import TIGHT, jobs, load, prove, two

from stoker import errors
from stoker.config.schema import ModelConfig
from stoker.core import runner_life as life
from stoker.events.inference import Ask, Delivery
from stoker.events.runner import Failed, Generate, Load, Tokenize
from stoker.services.runner_bank import wanted_first
from stoker.services.runner_memory import RunnerMemory
from stoker.units import Seconds


def started(**swap: Any) -> Rig:
    rig = Rig(two(**swap), FakeMemory(TIGHT))
    rig.start()
    return rig


def ask(rig: Rig, model: str) -> Asked:
    reader, writer = os.pipe2(os.O_CLOEXEC)
    future = rig.service.submit(Ask(prompt="hi", model=model), Delivery(), ALICE, writer)
    rig.turn()
    return Asked(reader, future)


def change(rig: Rig) -> None:
    """What a change to the other model needs of the runners, after the old one was closed."""
    rig.runner.die(status=0)
    rig.turn()
    load(rig, rig.runner)
    prove(rig, rig.runner)


def lose_the_other(rig: Rig, *, signal: int) -> None:
    """The old runner was closed, the other model's dies while it loads, the old one is back."""
    rig.runner.die(status=0)
    rig.turn()
    rig.runner.greet()
    rig.turn()
    rig.runner.die(signal=signal)
    rig.turn()
    rig.make_ready()


def test_by_default_a_request_cannot_change_the_model() -> None:
    rig = started()
    for name in ("b", "bee"):
        future = rig.service.answer(Ask(prompt="q", model=name), ALICE)
        rig.turn()
        with pytest.raises(errors.ModelUnavailable, match="'a' is loaded"):
            future.result(0)
    assert len(rig.launcher.runners) == 1


def test_an_alias_means_its_model() -> None:
    rig = started(policy="when-idle")
    asked = ask(rig, "bee")
    change(rig)
    assert jobs(rig.runner) == [asked.id]
    assert rig.loop.snapshot.model == "b"
    assert {m.name: m.aliases for m in rig.service.models()} == {"a": (), "b": ("bee",)}


def test_when_idle_waits_until_nobody_has_work_for_the_loaded_model() -> None:
    rig = started(policy="when-idle")
    first, other = rig.ask("for a"), ask(rig, "b")
    rig.pass_time(9)
    second = rig.ask("also for a")
    old = rig.runner
    old.stream(first.id, "x", done=True)
    rig.turn()
    assert not old.closed
    old.stream(second.id, "x", done=True)
    rig.turn()
    assert old.closed
    change(rig)
    assert jobs(rig.runner) == [other.id]


def test_on_demand_gives_the_loaded_model_its_time_first() -> None:
    rig = started(policy="on-demand", drain_timeout_s=Seconds(5.0))
    running, other = rig.ask("for a"), ask(rig, "b")
    old = rig.runner
    old.stream(running.id, "half")
    rig.pass_time(8)
    assert rig.loop.runners.swap.model == ""
    old.greet()
    rig.pass_time(3)
    assert rig.loop.runners.swap.model == "b"
    back = ask(rig, "a")  # waits for its model to come back
    old.stream(running.id, "whole", done=True)
    rig.turn()
    change(rig)
    assert jobs(rig.runner) == [other.id]
    rig.runner.stream(other.id, "x", done=True)
    rig.turn()
    change(rig)
    assert jobs(rig.runner) == [back.id]
    assert rig.loop.snapshot.model == "a"


def test_a_job_whose_model_fails_to_come_is_told_so() -> None:
    rig = started(policy="when-idle")
    asked = ask(rig, "b")
    lose_the_other(rig, signal=6)
    assert asked.records()[-1]["error"]["code"] == "model-unavailable"
    again = ask(rig, "b")
    with pytest.raises(errors.ModelUnavailable, match="set aside"):
        again.future.result(0)
    assert rig.loop.snapshot.model == "a"


def test_jobs_for_the_old_model_end_when_an_administrator_takes_it_away() -> None:
    """Only where requests cannot bring it back."""
    rig = started()
    named, any_model = ask(rig, "a"), rig.ask("whoever")
    waiting = ask(rig, "a")
    old = rig.runner
    rig.service.swap("b")
    rig.turn()
    old.stream(named.id, "x", done=True)
    old.stream(any_model.id, "x", done=True)
    rig.turn()
    change(rig)
    assert waiting.records()[-1]["error"]["code"] == "model-unavailable"


def test_an_idle_model_sleeps_and_the_next_request_wakes_it() -> None:
    rig = started(keep_alive_s=Seconds(60.0))
    old = rig.runner
    beats(rig, 59)
    assert not old.closed
    beats(rig, 2)
    assert old.closed
    assert rig.loop.snapshot.state == "asleep"  # while it goes: nothing is wrong with it
    old.die(status=0)
    rig.turn()
    assert (rig.loop.snapshot.state, rig.loop.snapshot.runner_pid) == ("asleep", 0)
    assert rig.loop.link.state.restarts == 0
    rig.pass_time(500)
    assert len(rig.launcher.runners) == 1
    asked = rig.ask()
    assert asked.future.result(0).state == "queued"
    assert rig.loop.snapshot.state == "starting"
    rig.make_ready()
    assert jobs(rig.runner) == [asked.id]
    rig.runner.stream(asked.id, "awake", done=True)
    rig.turn()
    assert asked.records()[0] == {"t": "awake"}


def beats(rig: Rig, seconds: int) -> None:
    for _ in range(seconds):
        if not rig.runner.closed:
            rig.runner.greet()
        rig.pass_time(1)


def test_work_keeps_a_model_awake() -> None:
    rig = started(keep_alive_s=Seconds(10.0))
    asked = rig.ask()
    beats(rig, 30)
    assert not rig.runner.closed
    rig.runner.stream(asked.id, "x", done=True)
    rig.turn()
    beats(rig, 9)
    tokens = rig.service.tokenize("x", ALICE)
    rig.turn()
    assert rig.runner.of_kind(Tokenize)
    beats(rig, 9)
    assert not rig.runner.closed
    assert not tokens.done()


def test_a_request_that_comes_while_the_model_goes_to_sleep_wakes_it_at_once() -> None:
    rig = started(keep_alive_s=Seconds(10.0))
    beats(rig, 12)
    old = rig.runner
    assert old.closed
    asked = rig.ask()
    assert rig.loop.snapshot.state == "restarting"
    old.die(status=0)
    rig.turn()
    assert rig.loop.link.state.restarts == 0  # a count of faults and of what was asked for
    rig.make_ready()
    assert [r.job for r in rig.runner.of_kind(Generate)] == [asked.id]  # type: ignore[union-attr]


def test_a_question_about_tokens_wakes_a_model_and_is_told_how_long_it_takes() -> None:
    rig = started(keep_alive_s=Seconds(10.0))
    rig.loop.runners.parts.memory.learn_load("a", 8.0)
    rig.loop.runners.parts.memory.learn_load("a", 8.0)
    beats(rig, 12)
    rig.runner.die(status=0)
    rig.turn()
    future = rig.service.tokenize("x", ALICE)
    rig.turn(1)
    with pytest.raises(errors.ModelLoading) as caught:
        future.result(0)
    assert caught.value.details["eta_ms"] >= 1000  # type: ignore[operator]
    assert rig.loop.link.state.phase is life.Phase.SPAWNING


def test_a_sleeping_model_is_not_loaded_for_a_request_that_wants_another_one() -> None:
    rig = started(keep_alive_s=Seconds(10.0), policy="on-demand")
    beats(rig, 12)
    rig.runner.die(status=0)
    rig.turn()
    asked = ask(rig, "b")
    assert len(rig.launcher.runners) == 2
    load(rig, rig.runner)
    assert rig.runner.load().path == "/models/b.gguf"
    prove(rig, rig.runner)
    assert jobs(rig.runner) == [asked.id]


def test_a_job_that_cannot_live_until_the_model_is_there_is_told_when_it_will_be() -> None:
    rig = started()
    old = rig.runner
    rig.service.swap("b")
    rig.turn()
    old.die(status=0)
    rig.turn()
    early = rig.ask(deadline_s=2)
    with pytest.raises(errors.ModelLoading) as caught:
        early.future.result(0)
    assert caught.value.details["eta_ms"] > 2000  # type: ignore[operator]
    patient = rig.ask(deadline_s=500)
    assert patient.future.result(0).eta_s > 2
    tokens = rig.service.tokenize("x", ALICE)
    rig.turn()
    with pytest.raises(errors.ModelLoading) as caught:
        tokens.result(0)
    assert caught.value.details["eta_ms"]


def test_a_kill_from_outside_ends_the_jobs_that_wait_and_is_not_tried_for_ever() -> None:
    rig = started(policy="when-idle")
    asked = ask(rig, "b")
    lose_the_other(rig, signal=9)
    assert asked.records()[-1]["error"]["code"] == "model-unavailable"
    assert rig.loop.snapshot.model == "a"
    assert not rig.loop.runners.swap.active
    again = ask(rig, "b")  # nobody is to blame: it may be tried again
    assert again.future.result(0).state == "queued"
    assert rig.loop.runners.swap.model == "b"


def test_a_job_for_a_model_that_gave_way_after_a_crash_is_not_answered_by_another() -> None:
    rig = started()
    named, anyone = ask(rig, "a"), rig.ask("whoever")
    rig.runner.die(signal=6)
    rig.turn()
    rig.runner.greet()
    rig.turn()
    rig.runner.say(Failed(rig.runner.load().id, "model-unavailable", "cannot load: truncated"))
    rig.turn()
    rig.runner.die(status=0)
    rig.turn()
    rig.make_ready()
    assert rig.loop.snapshot.model == "b"
    assert named.records()[-1]["error"]["code"] == "model-unavailable"
    assert jobs(rig.runner) == [anyone.id]


def test_a_model_that_would_have_to_shrink_beside_the_old_one_loads_after_it_instead() -> None:
    rig = Rig(two(), FakeMemory(8 << 30))
    rig.start()

    def no_room(*_: Any, **__: Any) -> Load:
        raise errors.InsufficientMemory("context 4096 to 512")

    parts = rig.loop.runners.parts
    rig.loop.runners.parts = replace(parts, plan_beside=no_room)
    old, future = rig.runner, rig.service.swap("b")
    rig.turn()
    cramped = rig.runner
    assert cramped is not old
    cramped.greet()
    rig.turn()
    assert cramped.closed  # it did not fit beside ...
    assert old.closed  # ... so the old one goes first
    assert rig.loop.snapshot.state == "loading"
    cramped.die(status=0)
    rig.turn()
    assert rig.runner is cramped  # not before both are gone
    old.die(status=0)
    rig.turn()
    load(rig, rig.runner)
    prove(rig, rig.runner)
    assert future.result(0).model == "b"
    assert {m.name: m.state for m in rig.service.models()} == {"a": "idle", "b": "ready"}


def selected(rig: Rig) -> str:
    """The model that would load first, were stokerd started anew on the same disk."""
    return wanted_first(two(), RunnerMemory(rig.kept))[0].name


def test_the_model_that_an_administrator_chose_is_the_one_after_a_restart() -> None:
    rig = started()
    future = rig.service.select_model("bee")
    rig.turn()
    assert selected(rig) == "a"
    change(rig)
    assert future.result(0).model == "b"
    assert selected(rig) == "b"
    memory = RunnerMemory(rig.kept)
    newer = replace(two(), default_model="c", models=(*two().models, ModelConfig("c", "/c")))
    assert wanted_first(newer, memory)[0].name == "c"
    gone = replace(two(), models=two().models[:1])
    assert wanted_first(gone, memory)[0].name == "a"


def test_what_a_request_or_an_update_brought_in_is_not_remembered() -> None:
    rig = started()
    rig.service.swap("b")
    rig.turn()
    change(rig)
    assert rig.loop.link.state.model == "b"
    assert selected(rig) == "a"


def test_choosing_the_default_forgets_the_choice() -> None:
    memory = RunnerMemory(MemoryStateFile())
    memory.remember_selected("b", "a")
    assert memory.selected("a") == "b"
    memory.remember_selected("a", "a")
    assert memory.selected("a") == ""
