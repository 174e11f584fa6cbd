"""Classes, places in the runner, ageing, heat and slow readers, one behaviour a test."""

from __future__ import annotations

from tests.fakes.scheduler_world import World, paused, started

from stoker.core.scheduler import (
    Ended,
    Headroom,
    Hold,
    Pause,
    Place,
    Requeue,
    Resume,
    Rules,
    RunnerLost,
    RunnerReady,
    Stalled,
    Withdraw,
)
from stoker.events.inference import JobClass, Quota
from stoker.units import Seconds

TOP, NORMAL, BACK = JobClass


def world(slots: int = 1, parked: int = 1, ageing_s: float = 60.0) -> World:
    return World(Rules(slots, 99, parked, Seconds(ageing_s)))


def test_interactive_goes_before_normal_and_normal_before_background() -> None:
    made = World(Rules(1, 99), open_=False)
    for name, job_class in (("back", BACK), ("plain", NORMAL), ("top", TOP)):
        made.submit(name, job_class=job_class, answer=2)
    began = started(made.tell(RunnerReady()))
    made.run(9)
    ends = sorted(("top", "plain", "back"), key=lambda name: made.work[name].ended_s)
    assert began == ["top"]
    assert ends == ["top", "plain", "back"]


def test_a_streaming_background_job_is_paused_for_an_interactive_one_and_resumed_after() -> None:
    made = world()
    made.submit("long", job_class=BACK, answer=100)
    made.run(10)
    actions = made.submit("quick", uid=1, job_class=TOP, answer=3)
    assert paused(actions) == ["long"]
    assert started(actions) == ["quick"]
    assert made.work["long"].written == 10
    made.run(3)
    assert made.place("long") is Place.DECODING
    assert [type(a) for a in made.log if a.job == "long"][-2:] == [Pause, Resume]
    made.run(90)
    assert made.work["long"].ended_s > 0


def test_normal_is_not_paused_for_interactive() -> None:
    made = world()
    made.submit("plain", answer=10)
    assert paused(made.submit("top", job_class=TOP)) == []
    assert made.state.queue == ("top",)


def test_background_keeps_a_free_slot_beside_others() -> None:
    made = world(slots=2)
    made.submit("back", job_class=BACK)
    assert paused(made.submit("top", job_class=TOP)) == []
    assert made.state.decoding == ("back", "top")


def quiet(slots: int = 2, ageing_s: float = 60.0) -> World:
    return World(Rules(slots, 99, 1, Seconds(ageing_s), background_waits=True))


def test_background_stands_still_beside_an_interactive_answer_and_goes_on_after_it() -> None:
    made = quiet()
    made.submit("back", job_class=BACK, answer=20)
    made.run(5)
    assert paused(made.submit("top", uid=1, job_class=TOP, answer=4)) == ["back"]
    assert made.state.decoding == ("top",)
    made.run(4)
    assert made.state.decoding == ("back",)
    made.run(20)
    assert made.work["back"].ended_s > 0


def test_background_does_not_begin_beside_an_interactive_answer_but_beside_a_normal_one() -> None:
    made = quiet()
    made.submit("top", job_class=TOP, answer=4)
    assert started(made.submit("back", uid=1, job_class=BACK)) == []
    made.run(5)
    assert made.state.decoding == ("back",)
    plain = quiet()
    plain.submit("plain", answer=4)
    assert started(plain.submit("back", uid=1, job_class=BACK)) == ["back"]


def test_background_that_waited_long_is_not_made_quiet_again() -> None:
    made = quiet(ageing_s=3.0)
    made.submit("back", job_class=BACK, answer=50)
    made.run(2)
    made.submit("top", uid=1, job_class=TOP, answer=200)
    assert made.state.decoding == ("top",)
    made.run(100)
    assert made.work["back"].ended_s > 0
    assert made.work["top"].ended_s < 0  # not yet


def test_without_a_parking_place_an_unseen_background_job_is_queued_again() -> None:
    made = world(parked=0)
    made.submit("back", job_class=BACK, prompt=400)
    made.run(5)
    actions = made.submit("top", job_class=TOP, answer=2)
    assert Requeue("back") in actions
    assert made.place("back") is Place.WAITING
    made.run(2)
    assert made.place("back") is Place.DECODING
    assert made.work["back"].read == 0


def test_without_a_parking_place_a_seen_background_job_runs_to_its_end() -> None:
    made = world(parked=0)
    made.submit("back", job_class=BACK, answer=20)
    made.run(5)
    assert started(made.submit("top", job_class=TOP)) == []
    made.run(15)
    assert made.place("top") is Place.DECODING


def test_the_newest_background_job_gives_way_first() -> None:
    made = world(slots=2)
    made.submit("old", job_class=BACK, answer=99)
    made.submit("new", job_class=BACK, answer=99)
    made.run(3)
    assert paused(made.submit("top", job_class=TOP)) == ["new"]


def test_paused_jobs_go_on_before_new_ones_of_their_class() -> None:
    made = world()
    made.submit("first", job_class=BACK, answer=99)
    made.run(5)
    made.submit("top", job_class=TOP, answer=2)
    made.submit("second", uid=7, job_class=BACK)
    made.run(2)
    assert made.state.decoding == ("first",)


def test_background_that_waited_long_rises_and_is_not_paused_again() -> None:
    made = world(ageing_s=2.0)
    made.submit("back", job_class=BACK, answer=50)
    made.run(2)
    for number in range(40):
        made.submit(f"top{number}", uid=1, job_class=TOP, answer=5)
    made.run(60)  # two seconds to each of two classes up, then its turn
    assert made.place("back") is Place.DECODING
    assert made.state.jobs["back"].lane is TOP
    assert paused(made.submit("more", uid=1, job_class=TOP)) == []


def test_a_slow_reader_frees_its_place_and_comes_back_in_order() -> None:
    made = world()
    made.submit("slow", answer=50)
    made.submit("next", uid=1, answer=10)
    made.run(5)
    actions = made.tell(Stalled("slow", stalled=True))
    assert (paused(actions), started(actions)) == (["slow"], ["next"])
    assert started(made.tell(Stalled("slow", stalled=False))) == []
    made.run(10)
    assert made.state.decoding == ("slow",)


def test_half_the_headroom_pauses_background_only() -> None:
    made = world(slots=2)
    made.submit("back", job_class=BACK, answer=99)
    made.submit("plain", answer=99)
    assert paused(made.tell(Headroom(0.49))) == ["back"]
    assert started(made.submit("more", job_class=BACK)) == []
    assert started(made.tell(Headroom(0.55))) == []  # a little cooler is not yet cool
    assert started(made.tell(Headroom(0.61))) == ["back"]


def test_little_headroom_leaves_one_job_the_most_urgent() -> None:
    made = world(slots=3)
    made.submit("one", answer=99)
    made.submit("two", answer=99)
    made.submit("top", job_class=TOP, answer=99)
    assert sorted(paused(made.tell(Headroom(0.19)))) == ["one", "two"]
    assert made.state.decoding == ("top",)
    assert started(made.tell(Headroom(0.4))) == ["one", "two"]


def test_no_headroom_or_a_hold_stops_everybody_and_release_goes_on() -> None:
    for stop, go in ((Headroom(0.0), Headroom(1.0)), (Hold(held=True), Hold(held=False))):
        made = world(slots=2)
        made.submit("one", answer=99)
        made.submit("two", answer=99)
        assert paused(made.tell(stop)) == ["one", "two"]
        assert started(made.submit("three")) == []
        assert started(made.tell(go)) == ["one", "two"]


def test_a_crash_takes_paused_jobs_too_and_blames_only_those_that_ran() -> None:
    made = world(slots=1)
    made.submit("back", job_class=BACK, prompt=100)
    made.run(2)
    made.submit("top", job_class=TOP)
    assert made.place("back") is Place.PARKED
    assert made.tell(RunnerLost(ordered=False)) == ()
    assert made.state.queue == ("back", "top")
    assert [made.state.jobs[name].losses for name in ("back", "top")] == [0, 1]
    assert started(made.tell(RunnerReady())) == ["top"]


def test_slots_free_at_one_moment_go_to_different_users() -> None:
    made = World(Rules(2, 99), open_=False)
    for name, uid in (("a1", 1), ("a2", 1), ("b1", 2)):
        made.submit(name, uid)
    assert started(made.tell(RunnerReady())) == ["a1", "b1"]


def test_a_user_at_the_limit_of_concurrent_jobs_lets_others_pass() -> None:
    made = world(slots=3)
    one = Quota(concurrent_jobs=1)
    made.submit("a1", uid=1, quota=one)
    made.submit("a2", uid=1, quota=one)
    made.submit("b1", uid=2)
    assert made.state.decoding == ("a1", "b1")
    assert started(made.tell(Ended("a1"))) == ["a2"]


def test_at_the_limit_ones_own_background_job_gives_way() -> None:
    made = world(slots=3)
    one = Quota(concurrent_jobs=1)
    made.submit("back", uid=1, job_class=BACK, quota=one, answer=99)
    made.run(3)
    actions = made.submit("top", uid=1, job_class=TOP, quota=one)
    assert (paused(actions), started(actions)) == (["back"], ["top"])


def test_withdrawing_a_paused_job_frees_its_place() -> None:
    made = world()
    made.submit("back", job_class=BACK, answer=99)
    made.run(3)
    made.submit("top", job_class=TOP, answer=99)
    made.tell(Withdraw("back"))
    assert made.state.running == ("top",)
