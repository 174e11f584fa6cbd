"""Changing the model while jobs run: nobody's stream is lost or mixed, failure leads back."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from signal import SIGKILL
from typing import Any

import pytest
from tests.fakes.runner import FakeRunner
from tests.fakes.system import FakeMemory
from tests.unit.services.inference_rig import Rig, config

from stoker import errors
from stoker.config.schema import Config, SwapConfig
from stoker.core import runner_life as life
from stoker.core.swap import Phase
from stoker.events.models import Probe, SwapResult
from stoker.events.runner import Answer, Delta, Deltas, Failed, Generate, Score
from stoker.units import Seconds

ROOMY, TIGHT = 8 << 30, 200 << 20


def two(**swap: Any) -> Config:
    """Models "a" (default) and "b", which is also called "bee"."""
    plain = config("a", "b")
    first, second = plain.models
    aliased = replace(second, aliases=("bee",))
    return replace(plain, models=(first, aliased), swap=SwapConfig(**swap))


def started(free: int, **swap: Any) -> Rig:
    rig = Rig(two(**swap), FakeMemory(free))
    rig.start()
    return rig


def select(rig: Rig, name: str = "b", probe: Probe | None = None) -> Future[SwapResult]:
    future = rig.service.swap(name, probe)
    rig.turn()
    return future


def load(rig: Rig, runner: FakeRunner) -> None:
    runner.greet()
    rig.turn()
    runner.become_ready()
    rig.turn()


def prove(rig: Rig, runner: FakeRunner, score: float = 12.0) -> None:
    (asked,) = runner.of_kind(Score)
    assert isinstance(asked, Score)
    runner.say(Answer(asked.id, {"nll": score, "tokens": 4}))
    runner.stream("probe", "Paris", done=True)
    rig.turn()


def phase(rig: Rig) -> Phase:
    return rig.loop.runners.swap.phase


def jobs(runner: FakeRunner) -> list[str]:
    return [r.job for r in runner.of_kind(Generate) if r.job != "probe"]  # type: ignore[union-attr]


def test_with_memory_for_both_the_old_model_answers_until_the_new_one_is_proven() -> None:
    rig = started(ROOMY)
    old, future = rig.runner, select(rig)
    new = rig.runner
    assert new is not old
    meanwhile = rig.ask("while it loads")
    assert jobs(old) == [meanwhile.id]
    load(rig, new)
    assert rig.loop.snapshot.state == "ready"
    prove(rig, new)
    late = rig.ask("while the old one ends")
    assert (jobs(old), jobs(new)) == ([meanwhile.id], [])
    old.stream(meanwhile.id, "old words", done=True)
    rig.turn()
    assert jobs(new) == [late.id]
    assert old.closed
    assert meanwhile.records()[0] == {"t": "old words"}
    new.stream(late.id, "new words", done=True)
    rig.turn()
    assert late.records()[0] == {"t": "new words"}
    result = future.result(0)
    assert (result.model, result.previous, result.beside, result.preempted) == ("b", "a", True, 0)
    assert result.probe.text == "Paris"
    assert rig.loop.snapshot.model == "b"


def test_without_memory_for_both_the_old_one_is_gone_before_the_new_one_starts() -> None:
    rig = started(TIGHT)
    old, future = rig.runner, select(rig)
    assert old.closed
    waiting = rig.ask("in the gap")
    assert waiting.future.result(0).state == "queued"
    assert rig.loop.snapshot.state == "loading"
    assert rig.runner is old
    old.die(status=0)
    rig.turn()
    load(rig, rig.runner)
    assert jobs(rig.runner) == []  # not before it has shown that it can answer
    prove(rig, rig.runner)
    assert jobs(rig.runner) == [waiting.id]
    assert future.result(0).beside is False


def test_jobs_that_do_not_end_in_time_are_preempted_and_unseen_ones_begin_again() -> None:
    rig = started(TIGHT, drain_timeout_s=Seconds(30.0))
    seen, unseen = rig.ask("seen"), rig.ask("unseen")
    old = rig.runner
    old.stream(seen.id, "half")
    rig.turn()
    future = select(rig)
    rig.pass_time(1)
    old.stream(seen.id, " more")
    rig.turn()
    assert not old.closed
    for _ in range(6):
        old.greet()  # a sign of life
        rig.pass_time(5)
    assert old.closed
    half, more, error = seen.records()
    assert (half, more) == ({"t": "half"}, {"t": " more"})
    assert error["error"]["code"] == "preempted"
    old.die(status=0)
    rig.turn()
    load(rig, rig.runner)
    prove(rig, rig.runner)
    assert jobs(rig.runner) == [unseen.id]
    assert future.result(0).preempted == 1


def test_late_words_of_the_old_runner_reach_no_stream_of_the_new_one() -> None:
    rig = started(ROOMY, drain_timeout_s=Seconds(0.0))
    asked, old = rig.ask("unseen"), rig.runner
    select(rig)
    new = rig.runner
    load(rig, new)
    prove(rig, new)
    assert jobs(new) == [asked.id]
    if not old.closed:
        old.say(Deltas((Delta(asked.id, t="from the past"),)))
    new.stream(asked.id, "only mine", done=True)
    rig.turn()
    assert asked.records()[0] == {"t": "only mine"}


@pytest.mark.parametrize("how", ["cannot load", "crashes", "is killed", "says nothing"])
def test_beside_a_new_model_that_fails_harms_nobody(how: str) -> None:
    rig = started(ROOMY)
    asked, old, future = rig.ask(), rig.runner, None
    future = select(rig)
    new = rig.runner
    fail(rig, new, how)
    rig.turn()
    with pytest.raises(errors.ModelUnavailable, match="cannot use model 'b'"):
        future.result(0)
    assert rig.loop.link.process is old
    old.stream(asked.id, "as ever", done=True)
    rig.turn()
    assert asked.records()[0] == {"t": "as ever"}
    states = {model.name: model.state for model in rig.service.models()}
    blamed = "idle" if how == "is killed" else "set-aside"
    assert states == {"a": "ready", "b": blamed}


def fail(rig: Rig, new: FakeRunner, how: str) -> None:
    new.greet()
    rig.turn()
    if how == "cannot load":
        new.say(Failed(new.load().id, "model-unavailable", "cannot load b.gguf: truncated"))
        rig.turn()
        new.die(status=0)
    elif how == "crashes":
        new.die(status=None, signal=6)
    elif how == "is killed":
        new.die(signal=SIGKILL)
    else:
        new.become_ready()
        rig.turn()
        prove(rig, new, float("nan"))
        new.die(status=0)


@pytest.mark.parametrize("how", ["cannot load", "crashes", "is killed", "says nothing"])
def test_alone_a_new_model_that_fails_gives_its_place_back(how: str) -> None:
    rig = started(TIGHT)
    old, future = rig.runner, select(rig)
    waiting = rig.ask("in the gap")
    old.die(status=0)
    rig.turn()
    new = rig.runner
    fail(rig, new, how)
    rig.turn()
    assert not future.done()
    again = rig.runner
    assert again is not new
    load(rig, again)
    assert again.load().path == "/models/a.gguf"
    with pytest.raises(errors.ModelUnavailable, match="a is used as before"):
        future.result(0)
    assert jobs(again) == [waiting.id]


def test_a_kill_of_the_old_runner_while_the_new_one_loads_changes_nothing() -> None:
    rig = started(ROOMY)
    old, future = rig.runner, select(rig)
    new = rig.runner
    old.die(signal=SIGKILL)
    rig.turn()
    assert len(rig.launcher.runners) == 3  # the old model comes back meanwhile
    load(rig, new)
    prove(rig, new)
    assert future.result(0).model == "b"
    assert rig.loop.link.process is new


def test_a_kill_of_the_old_runner_while_it_drains_ends_the_wait() -> None:
    rig = started(TIGHT)
    asked, old = rig.ask(), rig.runner
    old.stream(asked.id, "half")
    rig.turn()
    select(rig)
    old.die(signal=SIGKILL)
    rig.turn()
    assert asked.records()[-1]["error"]["code"] == "engine-failed"
    assert phase(rig) in (Phase.UNLOADING, Phase.LOADING)


def test_stop_in_the_middle_ends_both_runners_and_tells_everybody() -> None:
    rig = started(ROOMY)
    asked, old, future = rig.ask(), rig.runner, select(rig)
    new = rig.runner
    new.greet()
    rig.turn()
    rig.loop.post(rig.loop.begin_stop)
    rig.turn()
    assert asked.records()[-1]["error"]["code"] == "unavailable"
    with pytest.raises(errors.Unavailable):
        future.result(0)
    assert old.closed
    assert new.closed
    old.die(status=0)
    new.die(status=0)
    rig.loop.run()  # returns: nothing is left to do


def test_one_change_at_a_time_and_no_restart_in_the_middle() -> None:
    rig = started(ROOMY)
    select(rig)
    with pytest.raises(errors.Busy) as caught:
        select(rig, "a").result(0)
    assert caught.value.details["retry_after_ms"]
    restart = rig.service.restart_runner()
    rig.turn()
    with pytest.raises(errors.Busy):
        restart.result(0)


def test_a_model_that_serves_already_needs_no_change() -> None:
    rig = started(ROOMY)
    assert select(rig, "a").result(0).model == "a"
    assert len(rig.launcher.runners) == 1
    with pytest.raises(errors.ModelUnavailable, match="none of this name"):
        select(rig, "zzz").result(0)


def test_another_version_of_the_same_name_is_tried_and_the_old_one_not_blamed_for_it() -> None:
    """What an update does: the name stays, the file is another one."""
    rig = started(TIGHT)
    newer = replace(rig.loop.runners.models[0], path="/models/a-2.gguf")
    old, future = rig.runner, rig.service.swap(newer)
    rig.turn()
    old.die(status=0)
    rig.turn()
    rig.runner.greet()
    rig.turn()
    assert rig.runner.load().path == "/models/a-2.gguf"
    rig.runner.die(signal=6)
    rig.turn()
    load(rig, rig.runner)
    assert rig.runner.load().path == "/models/a.gguf"
    assert future.exception(0) is not None


def test_the_swap_takes_the_callers_own_probe() -> None:
    rig = started(ROOMY)
    slow = Probe(judge=lambda report: f"too slow: {report.decode_tok_s:.0f} tokens a second")
    future = select(rig, "b", slow)
    load(rig, rig.runner)
    prove(rig, rig.runner)
    with pytest.raises(errors.ModelUnavailable, match="too slow: 0"):
        future.result(0)


def test_a_probe_that_is_never_answered_fails_in_time() -> None:
    rig = started(ROOMY, probe_timeout_s=Seconds(5.0))
    old, future = rig.runner, select(rig)
    load(rig, rig.runner)
    for _ in range(6):
        if not future.done():
            old.greet()
            rig.runner.greet()
        rig.pass_time(1)
    with pytest.raises(errors.ModelUnavailable, match="5 s"):
        future.result(0)


def test_the_supervisor_goes_on_with_the_new_model_when_its_runner_dies() -> None:
    rig = started(ROOMY)
    select(rig)
    load(rig, rig.runner)
    prove(rig, rig.runner)
    rig.runner.die(signal=SIGKILL)
    rig.turn()
    rig.make_ready()
    assert rig.runner.load().path == "/models/b.gguf"
    assert rig.loop.link.state.phase is life.Phase.READY


def test_a_new_model_that_crashes_later_gives_way_to_the_old_one() -> None:
    rig = started(ROOMY)
    select(rig)
    load(rig, rig.runner)
    prove(rig, rig.runner)
    for _ in range(3):  # crash_limit
        rig.runner.die(signal=6)
        rig.turn()
        rig.pass_time(1)
        rig.make_ready()
    assert rig.runner.load().path == "/models/a.gguf"
    assert rig.loop.snapshot.runner_restarts == 3
    states = {model.name: model.state for model in rig.service.models()}
    assert states == {"a": "ready", "b": "set-aside"}
