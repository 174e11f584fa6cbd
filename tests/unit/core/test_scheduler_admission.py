"""Who is refused and for how long, what a place in the queue is worth, one behaviour a test."""

from __future__ import annotations

import pytest
from tests.fakes.scheduler_world import World

from stoker.core.scheduler import (
    Accept,
    Charged,
    Refuse,
    Rules,
    RunnerLost,
    RunnerReady,
    Withdraw,
    position,
    wait_s,
)
from stoker.events.inference import JobClass, Quota
from stoker.units import Bytes, Seconds

TOP, NORMAL, BACK = JobClass


def world(slots: int = 1) -> World:
    return World(Rules(slots, 99, 1))


def refusal(actions: tuple[object, ...]) -> Refuse:
    (found,) = actions
    assert isinstance(found, Refuse)
    return found


def test_one_waiting_job_more_than_the_quota_is_refused_by_name() -> None:
    made = world()
    two = Quota(queued_jobs=2)
    for name in ("running", "first", "second"):
        assert made.submit(name, uid=1, quota=two)[0] == Accept(name)
    refused = refusal(made.submit("third", uid=1, quota=two))
    assert refused.reason == "queued_jobs"
    assert refused.retry_after_s >= 1.0
    assert made.submit("other", uid=2, quota=two)[0] == Accept("other")


def test_all_text_together_is_bounded_and_one_request_alone_is_taken() -> None:
    made = World(Rules(1, 99, queue_bytes=Bytes(1000)))
    assert made.submit("huge", uid=1, prompt=500)[0] == Accept("huge")  # 2000 bytes
    assert refusal(made.submit("more", uid=2, prompt=1)).reason == "queue_bytes"
    made.tell(Withdraw("huge"))
    assert made.submit("first", uid=1, prompt=200)[0] == Accept("first")
    refused = refusal(made.submit("second", uid=2, prompt=100))
    assert refused.reason == "queue_bytes"
    assert refused.retry_after_s >= 1.0


def test_waiting_text_beyond_the_quota_is_refused_by_name() -> None:
    made = world()
    small = Quota(queued_bytes=Bytes(1000))
    made.submit("running", uid=1, quota=small)
    made.submit("first", uid=1, prompt=200, quota=small)  # 800 bytes
    assert refusal(made.submit("second", uid=1, prompt=100, quota=small)).reason == "queued_bytes"
    assert made.submit("third", uid=1, prompt=50, quota=small)[0] == Accept("third")


def test_tokens_a_minute_are_refused_until_the_debt_is_paid() -> None:
    made = world()
    rate = Quota(tokens_per_minute=600)
    made.submit("greedy", uid=1, quota=rate)
    made.tell(Charged("greedy", 500, 400))  # 300 more than there were
    refused = refusal(made.submit("more", uid=1, quota=rate))
    assert refused.reason == "tokens_per_minute"
    assert refused.retry_after_s == pytest.approx(30.1, abs=0.01)
    made.now += 30.2
    assert made.submit("more", uid=1, quota=rate)[0] == Accept("more")


def test_an_estimate_that_was_too_high_is_given_back_to_the_bucket() -> None:
    made = world()
    rate = Quota(tokens_per_minute=600)
    made.submit("a", uid=1, quota=rate)
    made.tell(Charged("a", 700, 0))
    made.tell(Charged("a", -200, 0))
    assert made.submit("b", uid=1, quota=rate)[0] == Accept("b")


def test_full_buckets_are_forgotten() -> None:
    made = world()
    for uid in range(50):
        made.submit(f"j{uid}", uid=uid, quota=Quota(tokens_per_minute=60))
        made.run(12)
    made.now += 120.0
    made.submit("last", uid=99, quota=Quota(tokens_per_minute=60))
    assert set(made.state.buckets) == {99}


def test_a_job_that_would_begin_after_its_deadline_is_refused_early() -> None:
    made = world()
    made.submit("teach", answer=50)
    made.run(50)  # ten tokens a second
    for number in range(3):
        made.submit(f"j{number}", answer=50)
    refused = refusal(made.submit("hasty", answer=50, deadline_s=made.now + 3.0))
    assert refused.reason == "deadline"
    assert refused.retry_after_s > 1.0
    assert made.submit("patient", answer=50, deadline_s=made.now + 300.0)[0] == Accept("patient")


def test_before_anything_was_learnt_nobody_is_refused_for_a_deadline() -> None:
    made = world()
    made.submit("first")
    assert made.submit("second", deadline_s=made.now + 0.5)[0] == Accept("second")


def test_positions_follow_class_and_fairness_not_arrival() -> None:
    made = World(Rules(1, 99), open_=False)
    for name in ("a1", "a2", "a3"):
        made.submit(name, uid=1)
    made.submit("b1", uid=2)
    made.submit("top", uid=3, job_class=TOP)
    line = sorted(made.work, key=lambda name: position(made.state, name, Seconds(0)))
    assert line == ["top", "a1", "b1", "a2", "a3"]
    assert position(made.state, "unknown", Seconds(0)) == 0


def test_a_position_counts_what_a_user_has_running() -> None:
    made = world()
    for name, uid in (("a1", 1), ("a2", 1), ("b1", 2)):
        made.submit(name, uid)
    assert position(made.state, "b1", Seconds(0)) == 1
    made.run(10)
    assert made.state.decoding == ("b1",)


def test_waiting_time_is_the_work_before_it_at_the_speed_seen() -> None:
    made = world()
    made.submit("teach", answer=50)
    made.run(50)
    for name in ("running", "next", "after"):
        made.submit(name, answer=20)
    waits = [wait_s(made.state, name, Seconds(made.now)) for name in ("running", "next", "after")]
    assert waits == pytest.approx([0.0, 2.0, 4.0], rel=0.05)
    made.run(25)
    assert made.work["next"].began_s == pytest.approx(5.0 + 2.0, abs=0.2)


def test_a_background_job_in_a_slot_delays_no_other_class() -> None:
    made = World(Rules(1, 99, parked_slots=0))
    made.submit("back", job_class=BACK, answer=500)
    made.run(2)
    made.submit("top", job_class=TOP)  # it can have no sequence yet
    assert wait_s(made.state, "top", Seconds(made.now)) == 0.0
    made.submit("more", job_class=BACK)
    assert wait_s(made.state, "more", Seconds(made.now)) >= 5.0


def test_a_requeue_after_a_crash_keeps_what_was_had() -> None:
    made = world()
    made.submit("a", uid=1, prompt=400)
    made.run(50)
    before = made.state.lanes[NORMAL].tag(1)
    assert before == pytest.approx(50.0)
    made.tell(RunnerLost(ordered=False))
    made.submit("b", uid=2)
    assert made.state.lanes[NORMAL].tag(1) == before
    made.tell(RunnerReady())
    assert made.state.decoding == ("b",)  # who had nothing yet is first
