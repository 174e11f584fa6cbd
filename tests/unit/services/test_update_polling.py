"""When the agent looks for updates by itself, what it installs, and what a job says of its rest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stoker import errors
from stoker.core import eta
from stoker.events.updates import Deployment, UpdateJob
from stoker.services.update_jobs import UpdateJobs
from stoker.services.update_polling import Polling, after, look, pick
from stoker.units import Seconds

NEW = Deployment("chat", 2, "new", source="https://a/")
OLD = Deployment("vision", 1, "installed", source="https://a/")
ABSENT = Deployment("voice", 1, "absent")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_look_comes_after_its_interval_and_a_share_of_chance() -> None:
    clock, looks = Clock(), 0
    polling = Polling(Seconds(100.0), False, clock, lambda: 0.5)

    def look() -> list[Deployment]:
        nonlocal looks
        looks += 1
        return [NEW]

    polling.turn(look, lambda _name: None)
    assert (looks, polling.due_s()) == (0, 50.0)  # the first one at a random time
    clock.now = 50.0
    polling.turn(look, lambda _name: None)
    assert (looks, polling.due_s()) == (1, 105.0)
    assert Polling(Seconds(0.0), True, clock).due_s() is None


@pytest.mark.parametrize(
    ("found", "automatic", "begun"),
    [([NEW, OLD], True, ["chat"]), ([NEW], False, []), ([OLD], True, []), ([NEW, NEW], True, [])],
)
def test_only_one_new_deployment_begins_and_only_where_that_is_wanted(
    found: list[Deployment], automatic: bool, begun: list[str]
) -> None:
    clock = Clock()
    names: list[str] = []
    polling = Polling(Seconds(1.0), automatic, clock, lambda: 0.0)
    polling.turn(lambda: found, names.append)
    assert names == begun


def test_a_look_that_fails_is_tried_again_later() -> None:
    clock = Clock()
    polling = Polling(Seconds(10.0), True, clock, lambda: 0.0)

    def fail() -> list[Deployment]:
        raise errors.Unavailable("cannot look")

    polling.turn(fail, lambda _name: None)
    assert polling.due_s() == 10.0


def test_a_source_that_is_dead_does_not_hide_what_the_others_have() -> None:
    def inspect(source: str) -> list[Deployment]:
        if "dead" in source:
            raise errors.Unavailable(f"cannot reach {source}")
        return [NEW]

    assert look(["/dead", "/good"], inspect) == (replace(NEW, source="/good"),)
    with pytest.raises(errors.Unavailable, match="/dead1"):
        look(["/dead1", "/dead2"], inspect)


def test_a_listed_deployment_is_picked_by_name_or_because_it_is_the_only_new_one() -> None:
    assert pick([OLD, NEW, ABSENT], "") == NEW
    assert pick([OLD, NEW], "vision") == OLD
    for listed, wanted in (([OLD], ""), ([], ""), ([NEW], "other"), ([ABSENT], "voice")):
        with pytest.raises(errors.InvalidRequest, match="last look"):
            pick(listed, wanted)


def test_what_is_not_taken_is_told_with_the_reason_and_what_would_take_it() -> None:
    left, listed = replace(NEW, state="failed"), f"{NEW.name} {NEW.version}"
    force = f"install --deployment {NEW.name} --force"
    more = replace(NEW, name="other")
    bad = replace(NEW, state="refused", reason="it is for another board")
    for items, why, hint in (
        ([left, OLD], f"{listed} failed here before or was left", force),
        ([OLD], "is installed already", "check"),
        ([bad], "is refused: it is for another board", "check"),
        ([ABSENT], "nothing new: ", "check"),
        ([OLD] * 5 + [bad], "nothing new: chat 2 is refused.*; 2 more$", "check"),
        ([NEW, more], f"more than one: {listed}, other {NEW.version}", "--deployment NAME"),
        ([], "the last look found nothing$", "check"),
    ):
        with pytest.raises(errors.InvalidRequest, match=why) as raised:
            pick(items, "")
        assert hint in raised.value.hint


def test_what_a_look_saw_follows_the_jobs_that_came_after_it() -> None:
    begun = UpdateJob("1", "install", NEW.name, NEW.version)
    installed = after([NEW, ABSENT], replace(begun, state="done"))
    assert [item.state for item in installed] == ["installed", ABSENT.state]
    assert after([NEW], replace(begun, state="failed"))[0].state == "failed"
    back = UpdateJob("2", "rollback", state="failed")
    assert after(installed, back) == installed
    left = after(installed, replace(back, state="done"))
    assert [item.state for item in left] == ["failed", ABSENT.state]


def test_the_rest_of_a_phase_is_told_from_its_own_rate() -> None:
    clock = Clock()
    jobs = UpdateJobs(clock)
    job = jobs.begin("install", "chat", 1).id
    jobs.phase("fetching", "", "")

    def progress(done: int, total: int, now: float) -> int:
        clock.now = now
        jobs.progress(done, total)
        found = jobs.get(job)
        assert found is not None
        return found.eta_s

    assert progress(500, 1000, 0.0) == eta.UNKNOWN_S  # that was there before
    assert progress(501, 1000, 0.5) == eta.UNKNOWN_S
    assert progress(600, 1000, 10.0) == 40
    assert progress(1000, 1000, 50.0) == 0
    assert progress(10, 2000, 51.0) == eta.UNKNOWN_S  # the next object
    jobs.phase("applying", "", "")
    found = jobs.get(job)
    assert found is not None
    assert found.eta_s == eta.UNKNOWN_S


def test_bytes_on_the_wire_are_added_up_over_fetches() -> None:
    jobs = UpdateJobs(Clock())
    job = jobs.begin("install", "chat", 1).id
    for count in (10, 100, 5, 7):  # two fetches
        jobs.wire(count)
    found = jobs.get(job)
    assert found is not None
    assert found.wire_bytes == 107
    second = jobs.begin("install", "chat", 2).id
    jobs.wire(3)
    found = jobs.get(second)
    assert found is not None
    assert found.wire_bytes == 3


def test_a_fault_of_a_look_does_not_end_the_thread_that_looks() -> None:
    polling = Polling(Seconds(10.0), True, Clock(), lambda: 0.0)

    def fail() -> list[Deployment]:
        raise OSError(5, "Input/output error")

    polling.turn(fail, lambda _name: None)
    assert polling.due_s() == 10.0
