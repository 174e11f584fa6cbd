"""What callers see while runners die, hang, load and are replaced."""

from __future__ import annotations

from dataclasses import replace
from signal import SIGABRT, SIGBUS, SIGKILL

import pytest
from tests.fakes.runner import FakeRunner
from tests.unit.services.inference_rig import ALICE, BOB, Rig, config

from stoker import errors
from stoker.config.schema import Config
from stoker.core import runner_life as life
from stoker.events.inference import Ask, Owner
from stoker.events.runner import Beat, Cancel, Embed, Failed, Generate, Ping
from stoker.services.runner_queries import MAX_OF_USER, MAX_QUERIES
from stoker.units import Seconds


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.start()
    return made


def test_a_crash_in_mid_stream_is_told_and_the_next_question_is_answered(rig: Rig) -> None:
    asked = rig.ask()
    rig.runner.stream(asked.id, "half")
    rig.turn()
    rig.runner.die(signal=SIGKILL)
    rig.turn()
    half, error = asked.records()
    assert half == {"t": "half"}
    assert error["error"]["code"] == "engine-failed"
    assert error["error"]["retryable"] is True
    assert len(rig.launcher.runners) == 2
    rig.make_ready()
    again = rig.ask()
    rig.runner.stream(again.id, "whole", done=True)
    rig.turn()
    assert again.records()[0] == {"t": "whole"}


def test_a_question_nobody_saw_answered_is_asked_again_after_a_crash(rig: Rig) -> None:
    asked = rig.ask("again please")
    rig.runner.die(signal=SIGKILL)
    rig.turn()
    assert asked.read() is None
    rig.make_ready()
    (request,) = rig.runner.of_kind(Generate)
    assert isinstance(request, Generate)
    assert request.prompt == "again please"
    assert [kind for kind, _ in rig.heard] == ["started"]


def test_a_prompt_that_kills_two_runners_is_not_tried_a_third_time(rig: Rig) -> None:
    asked = rig.ask("poison")
    rig.runner.die(signal=SIGABRT)
    rig.turn()
    rig.make_ready()
    rig.runner.die(signal=SIGABRT)
    rig.turn()
    error = asked.records()[-1]["error"]
    assert error["code"] == "engine-failed"
    assert "twice" in error["message"]


def test_words_said_before_death_still_count(rig: Rig) -> None:
    asked = rig.ask()
    rig.runner.stream(asked.id, "all of it", done=True)
    rig.runner.die(signal=SIGABRT)
    rig.turn()
    assert [next(iter(record)) for record in asked.records()] == ["t", "done"]


def test_a_silent_runner_is_killed_and_replaced(rig: Rig) -> None:
    asked = rig.ask()
    rig.runner.stream(asked.id, "x")
    rig.turn()
    rig.pass_time(11)
    assert rig.runner.signals == [SIGKILL]
    rig.runner.die(signal=SIGKILL)
    rig.turn()
    assert "hung" in asked.records()[-1]["error"]["message"]


def _pings_in_ten_seconds(rig: Rig) -> int:
    before = len(rig.runner.of_kind(Ping))
    for _ in range(20):
        rig.pass_time(0.5)
        rig.runner.say(Beat(1, 0, 0, 0))
    return len(rig.runner.of_kind(Ping)) - before


def test_pings_go_out_once_a_second_while_somebody_asks(rig: Rig) -> None:
    rig.ask()
    assert _pings_in_ten_seconds(rig) == 10


def test_pings_are_rarer_while_nobody_asks(rig: Rig) -> None:
    assert _pings_in_ten_seconds(rig) == 5


def test_a_short_heartbeat_limit_keeps_its_pings_while_nobody_asks() -> None:
    tight = config()
    rig = Rig(replace(tight, runner=replace(tight.runner, heartbeat_timeout_s=Seconds(2))))
    rig.start()
    assert _pings_in_ten_seconds(rig) == 10


def test_a_runner_that_ran_out_of_memory_is_told_as_such(rig: Rig) -> None:
    asked = rig.ask()
    rig.runner.stream(asked.id, "half")
    rig.turn()
    counted = rig.service.tokenize("how long", ALICE)
    rig.turn()
    rig.runner.die(signal=SIGKILL, oom=True)
    rig.turn()
    error = asked.records()[-1]["error"]
    assert error["code"] == "insufficient-memory"
    assert "out of memory" in error["message"]
    with pytest.raises(errors.InsufficientMemory):
        counted.result(0)


def test_runners_that_die_before_their_hello_never_cost_a_model_its_place(rig: Rig) -> None:
    rig.runner.die(signal=SIGKILL)
    rig.turn()
    for _ in range(10):
        rig.runner.die(status=203)
        rig.turn()
        rig.pass_time(60)
    (model,) = rig.service.models()
    assert model.state != "set-aside"
    rig.make_ready()
    assert rig.loop.snapshot.state == "ready"


def test_questions_wait_while_the_model_loads(rig: Rig) -> None:
    rig.runner.die(signal=SIGKILL)
    rig.turn()
    asked = rig.ask()
    assert asked.future.result(0).state == "queued"
    rig.make_ready()
    assert len(rig.runner.of_kind(Generate)) == 1


def test_a_model_that_cannot_be_loaded_gives_the_next_one_a_chance() -> None:
    rig = Rig(Config(models=config("bad", "good").models, default_model="bad"))
    rig.loop.link.step(life.Start(rig.loop.now_s()))
    rig.turn()
    rig.runner.greet()
    rig.turn()
    load = rig.runner.load()
    assert load.path == "/models/bad.gguf"
    rig.runner.say(Failed(load.id, "model-unavailable", "cannot load bad.gguf: truncated"))
    rig.turn()
    assert rig.runner.closed
    rig.runner.die(status=0)
    rig.make_ready()
    assert rig.loop.snapshot.model == "good"
    states = {model.name: (model.state, model.reason) for model in rig.service.models()}
    assert states["good"][0] == "ready"
    assert states["bad"] == ("set-aside", "cannot load bad.gguf: truncated")


def test_without_any_model_questions_are_refused_with_the_reason() -> None:
    rig = Rig(Config())
    rig.loop.link.step(life.Start(rig.loop.now_s()))
    future = rig.service.answer(Ask(prompt="q"), ALICE)
    rig.turn()
    with pytest.raises(errors.ModelUnavailable, match="no model is configured"):
        future.result(0)
    assert rig.launcher.runners == []


def test_the_last_good_model_is_remembered_once_it_has_answered(rig: Rig) -> None:
    assert rig.kept.load()["last_good"] == ""
    asked = rig.ask()
    rig.runner.stream(asked.id, "x", done=True)
    rig.turn()
    assert rig.kept.load()["last_good"] == "tiny"


def test_tokenize_is_answered_or_says_why_not(rig: Rig) -> None:
    rig.runner.die(signal=SIGKILL)
    rig.turn()
    future = rig.service.tokenize("x", ALICE)
    rig.turn()
    with pytest.raises(errors.ModelLoading):
        future.result(0)


def test_a_query_the_runner_never_answers_fails_in_time(rig: Rig) -> None:
    future = rig.service.tokenize("x", ALICE)
    rig.turn()
    for _ in range(7):
        rig.runner.greet()  # any word is a sign of life
        rig.pass_time(5)
    with pytest.raises(errors.DeadlineExceeded):
        future.result(0)


def test_a_flood_of_queries_is_told_to_come_back(rig: Rig) -> None:
    """Each may hold a megabyte here and in the runner, and takes the runner's time."""
    users = [Owner(f":1.{uid}", uid) for uid in range(MAX_QUERIES + 1)]
    asked = [rig.service.tokenize("some text", user) for user in users]
    rig.turn()
    with pytest.raises(errors.Busy) as caught:
        asked[-1].result(0)
    assert caught.value.details["retry_after_ms"]
    assert not any(future.done() for future in asked[:-1])


def test_one_users_flood_of_queries_leaves_places_for_the_others(rig: Rig) -> None:
    flood = [rig.service.tokenize("some text", ALICE) for _ in range(MAX_OF_USER + 1)]
    other = rig.service.tokenize("some text", BOB)
    rig.turn()
    with pytest.raises(errors.Busy):
        flood[-1].result(0)
    assert not other.done()


def test_questions_of_a_caller_who_left_give_their_places_back(rig: Rig) -> None:
    """Vectors take minutes on a small board: five who left must not keep all others out."""
    asked = [rig.service.embed(["some text"], ALICE) for _ in range(MAX_OF_USER)]
    rig.turn()
    rig.service.caller_vanished(ALICE.unique_name)
    rig.turn()
    for future in asked:
        with pytest.raises(errors.Cancelled):
            future.result(0)
    sent = [request.id for request in rig.runner.of_kind(Embed)]  # type: ignore[union-attr]
    stopped = [request.job for request in rig.runner.of_kind(Cancel)]  # type: ignore[union-attr]
    assert stopped == sent
    again = rig.service.embed(["some text"], Owner(":1.9", ALICE.uid))
    rig.turn()
    assert not again.done()


def test_jobs_that_wait_end_when_no_model_is_left(rig: Rig) -> None:
    """New ones are refused then; the old ones must not learn it at their deadline."""
    asked = rig.ask("never seen")
    rig.runner.die(signal=SIGBUS)  # its file was cut short under it
    rig.turn()
    rig.runner.greet()
    rig.turn()
    rig.runner.say(Failed(rig.runner.load().id, "model-unavailable", "its header is cut short"))
    rig.turn()
    rig.runner.die(status=0)
    rig.turn()
    assert rig.loop.snapshot.state == "no-model"
    (last,) = asked.records()
    assert last["error"]["code"] == "model-unavailable"
    assert "cut short" in last["error"]["message"]


def test_restart_ends_running_jobs_as_preempted_and_keeps_waiting_ones(rig: Rig) -> None:
    seen, unseen = rig.ask(), rig.ask()
    rig.runner.stream(seen.id, "x")
    rig.turn()
    rig.service.restart_runner()
    rig.turn()
    assert rig.runner.closed
    rig.runner.die(status=0)
    rig.turn()
    assert seen.records()[-1]["error"]["code"] == "preempted"
    rig.make_ready()
    assert [r.job for r in rig.runner.of_kind(Generate)] == [unseen.id]  # type: ignore[union-attr]


def test_stop_ends_every_job_with_a_typed_error_and_the_runner_with_it(rig: Rig) -> None:
    running, _second, waiting = rig.ask(), rig.ask(), rig.ask()
    rig.loop.post(rig.loop.begin_stop)
    rig.turn()
    assert running.records()[-1]["error"]["code"] == "unavailable"
    assert waiting.records()[-1]["error"]["code"] == "unavailable"
    assert rig.runner.closed
    rig.runner.die(status=0)
    rig.loop.run()  # returns: nothing is left to do
    assert rig.loop.snapshot.state == "stopping"


def test_a_runner_that_cannot_be_started_is_tried_again_later() -> None:
    rig = Rig()
    rig.launcher.broken = True
    rig.loop.link.step(life.Start(rig.loop.now_s()))
    rig.turn()
    assert rig.loop.snapshot.state == "restarting"
    assert "cannot start runner" in rig.loop.snapshot.reason
    rig.launcher.broken = False
    rig.pass_time(1)
    rig.make_ready()
    assert rig.loop.snapshot.state == "ready"


def test_no_descriptor_for_a_runner_does_not_end_the_loop() -> None:
    rig = Rig()

    def none_left(libraries: str = "") -> FakeRunner:
        raise OSError(24, "Too many open files")

    rig.launcher.start = none_left  # type: ignore[method-assign]
    rig.loop.link.step(life.Start(rig.loop.now_s()))
    rig.turn()
    assert rig.loop.snapshot.state == "restarting"
    assert "Too many open files" in rig.loop.snapshot.reason
