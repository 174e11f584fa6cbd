"""What classes, quotas and heat mean for callers: pauses in the runner, refusals, numbers."""

from __future__ import annotations

import pytest
from tests.unit.services.inference_rig import ALICE, BOB, Rig, config

from stoker import errors
from stoker.core import scheduler
from stoker.events.inference import Ask, Delivery, JobClass, Owner, Quota, Standing
from stoker.events.runner import Cancel, Delta, Deltas, Generate, Pause, Resume
from stoker.units import Bytes

TOP, NORMAL, BACK = JobClass
CAROL = Owner(":1.3", 1002)


class Policy:
    """Standings by UID; everybody else may do everything."""

    def __init__(self, **of: Standing) -> None:
        self._of = {int(uid[1:]): standing for uid, standing in of.items()}

    def of(self, uid: int) -> Standing:
        return self._of.get(uid, Standing())


@pytest.fixture
def rig() -> Rig:
    made = Rig(config(queue_limit=9, background_waits=False))
    made.start()
    return made


def jobs(rig: Rig) -> list[str]:
    return [request.job for request in rig.runner.of_kind(Generate)]  # type: ignore[union-attr]


def test_the_runner_gets_room_for_jobs_that_stand_still(rig: Rig) -> None:
    assert rig.runner.load().slots == 2 + 1


def test_a_streaming_background_job_stands_still_while_an_interactive_one_needs_its_slot(
    rig: Rig,
) -> None:
    back = [rig.ask(owner=BOB, job_class=BACK) for _ in range(2)]
    for asked in back:
        rig.runner.stream(asked.id, "x")
    rig.turn()
    quick = rig.ask(owner=ALICE, job_class=TOP)
    assert rig.runner.of_kind(Pause) == [Pause(back[1].id)]
    assert jobs(rig)[-1] == quick.id
    assert rig.loop.snapshot.active_jobs == 3
    assert rig.loop.snapshot.decoding_jobs == 2
    view = rig.service.job(back[1].id)
    rig.turn()
    assert (view.result(0).state, view.result(0).job_class) == ("running", "background")
    assert view.result(0).eta_s > 0.0
    rig.runner.stream(quick.id, "y", done=True)
    rig.turn()
    assert rig.runner.of_kind(Resume) == [Resume(back[1].id)]


def test_background_is_quiet_beside_an_interactive_answer_even_with_a_slot_to_spare() -> None:
    rig = Rig(config(queue_limit=9))
    rig.start()
    back = rig.ask(owner=BOB, job_class=BACK)
    rig.runner.stream(back.id, "x")
    rig.turn()
    quick = rig.ask(owner=ALICE, job_class=TOP)
    assert rig.runner.of_kind(Pause) == [Pause(back.id)]
    rig.runner.stream(quick.id, "y", done=True)
    rig.turn()
    assert rig.runner.of_kind(Resume) == [Resume(back.id)]


def test_an_unseen_background_job_is_asked_again_and_its_late_words_are_not_mixed_in() -> None:
    rig = Rig(config(queue_limit=9, background_waits=False))
    rig.start()
    back = [rig.ask(owner=BOB, job_class=BACK) for _ in range(2)]
    first = [rig.ask(owner=ALICE, job_class=TOP) for _ in range(2)]
    old = back[0].id  # the first pause took the one parking place, so this one is given up
    assert rig.runner.of_kind(Cancel) == [Cancel(old)]
    error = {"code": "cancelled", "message": "cannot finish the job: it was cancelled"}
    rig.runner.say(Deltas((Delta(old, t="stale"), Delta(old, error=error))))
    rig.turn()
    assert back[0].read() is None
    for asked in first:
        rig.runner.stream(asked.id, "y", done=True)
    rig.turn()
    again = jobs(rig)[-1]
    assert again.startswith(f"{old}.")
    rig.runner.stream(again, "fresh", done=True)
    rig.turn()
    assert next(next(iter(record.values())) for record in back[0].records()) == "fresh"
    assert [kind for kind, job in rig.heard if job == old] == ["started", "finished"]


def test_a_request_without_a_class_is_normal_and_ask_is_interactive(rig: Rig) -> None:
    assert rig.ask().future.result(0).job_class == "normal"
    answer = rig.service.answer(Ask(prompt="q"), ALICE)
    rig.turn()
    rig.runner.stream(jobs(rig)[-1], "a", done=True)
    rig.turn()
    assert answer.result(0).job_class == "interactive"


def test_policy_lowers_a_default_and_refuses_a_class_asked_for(rig: Rig) -> None:
    rig.service._standings = Policy(u1000=Standing(BACK))
    assert rig.ask().future.result(0).job_class == "background"
    with pytest.raises(errors.NotAuthorized) as caught:
        rig.ask(job_class=NORMAL).future.result(0)
    assert "background" in caught.value.hint
    assert rig.ask(owner=BOB, job_class=TOP).future.result(0).job_class == "interactive"


def test_a_quota_is_refused_by_name_with_a_time_to_come_back(rig: Rig) -> None:
    rig.service._standings = Policy(u1000=Standing(TOP, Quota(1, queued_jobs=1)))
    running, waiting = rig.ask(), rig.ask()
    assert jobs(rig) == [running.id]
    refused = rig.ask()
    with pytest.raises(errors.QuotaExceeded) as caught:
        refused.future.result(0)
    assert caught.value.details["quota"] == "queued_jobs"
    assert int(caught.value.details["retry_after_ms"]) >= 1000
    assert refused.read() == b""  # the stream was closed
    assert waiting.future.result(0).queue_position == 1
    rig.ask(owner=BOB)
    assert len(jobs(rig)) == 2


def test_tokens_are_counted_as_they_come_and_set_right_at_the_end(rig: Rig) -> None:
    rig.service._standings = Policy(u1000=Standing(TOP, Quota(tokens_per_minute=60)))
    asked = rig.ask("x" * 400)
    rig.runner.say(Deltas((Delta(asked.id, p=(40, 80), e=40),)))
    rig.turn()
    rig.loop.desk.queue.step(scheduler.Tick())  # before any decision they are told
    assert rig.loop.desk.queue.state.buckets[1000].level == pytest.approx(20.0)
    usage = {"prompt_tokens": 80, "completion_tokens": 10}
    rig.runner.say(Deltas((Delta(asked.id, t="a"),)))
    rig.runner.say(Deltas((Delta(asked.id, done={"finish_reason": "stop", "usage": usage}),)))
    rig.turn()
    assert rig.loop.desk.queue.state.buckets[1000].level == pytest.approx(60 - 90)
    with pytest.raises(errors.QuotaExceeded) as caught:
        rig.ask().future.result(0)
    assert caught.value.details == {"quota": "tokens_per_minute", "retry_after_ms": 31_000}


def test_words_of_a_job_cost_its_user_in_the_next_choice(rig: Rig) -> None:
    greedy, _ = rig.ask(owner=ALICE), rig.ask(owner=BOB)
    rig.runner.say(Deltas(tuple(Delta(greedy.id, t="x", n=1) for _ in range(300))))
    rig.turn()
    mine, theirs = rig.ask(owner=ALICE), rig.ask(owner=BOB)
    assert theirs.future.result(0).queue_position == 1
    usage = {"prompt_tokens": 3, "completion_tokens": 300}
    rig.runner.say(Deltas((Delta(greedy.id, done={"finish_reason": "stop", "usage": usage}),)))
    rig.turn()
    assert jobs(rig)[-1] == theirs.id
    assert mine.future.result(0).queue_position == 1  # when it came it was alone


def test_half_the_headroom_pauses_background_and_none_refuses_new_work(rig: Rig) -> None:
    back, plain = rig.ask(job_class=BACK), rig.ask()
    rig.service.headroom(0.4)
    rig.turn()
    assert rig.runner.of_kind(Pause) == [Pause(back.id)]
    rig.service.headroom(0.0)
    rig.turn()
    assert rig.runner.of_kind(Pause)[1:] == [Pause(plain.id)]
    assert rig.service.activity() == 0.0
    with pytest.raises(errors.Throttled):
        rig.ask().future.result(0)
    rig.service.headroom(1.0)
    rig.turn()
    assert rig.runner.of_kind(Resume) == [Resume(plain.id), Resume(back.id)]


def test_a_job_that_stands_still_has_no_deadline_of_its_own_but_the_callers(rig: Rig) -> None:
    back = rig.ask(job_class=BACK, deadline_s=5)
    rig.service.headroom(0.4)
    rig.pass_time(5.1)
    assert back.records()[-1]["error"]["code"] == "deadline-exceeded"
    assert rig.runner.of_kind(Cancel) == [Cancel(back.id)]


def test_who_waits_long_rises_while_time_passes() -> None:
    rig = Rig(config(queue_limit=9, ageing_s=10))
    rig.start()
    running = [rig.ask(owner=ALICE, job_class=TOP) for _ in range(2)]
    back = rig.ask(owner=BOB, job_class=BACK)
    rig.pass_time(20)
    late = rig.ask(owner=CAROL, job_class=TOP)
    rig.runner.stream(running[0].id, "x", done=True)
    rig.turn()
    assert jobs(rig)[-1] == back.id
    assert late.future.result(0).queue_position >= 1


def test_the_size_of_what_waits_is_bounded_for_each_user(rig: Rig) -> None:
    rig.service._standings = Policy(u1000=Standing(TOP, Quota(queued_bytes=Bytes(600))))
    running = [rig.ask(owner=BOB) for _ in range(2)]
    assert len(running) == 2
    rig.ask("x" * 400)
    with pytest.raises(errors.QuotaExceeded) as caught:
        rig.ask("x" * 150).future.result(0)
    assert caught.value.details["quota"] == "queued_bytes"


def test_a_door_that_names_no_class_leaves_it_to_the_service() -> None:
    assert Delivery().job_class is None
