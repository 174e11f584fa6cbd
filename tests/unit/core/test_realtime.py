"""The level of CPU placement: what the kernel reads back, and the reason why it is not more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stoker.core.realtime import judge
from stoker.events.realtime import RtFacts, ThreadFacts

ONLINE = (0, 1, 2, 3)
OWN = RtFacts(made="partition", partition="root", effective="2-3", online=ONLINE)


def threads(*cpus: tuple[int, ...], policy: int = 0, priority: int = 0) -> tuple[ThreadFacts, ...]:
    return tuple(ThreadFacts(mask, policy, priority) for mask in cpus)


def test_a_valid_partition_is_the_highest_level() -> None:
    view = judge(OWN)
    assert (view.level, view.cpus, view.reason) == ("partition", "2-3", "")


@pytest.mark.parametrize("reads", ["root invalid (Parent is not a partition root)", "member", ""])
def test_what_the_kernel_reads_back_counts_and_a_lost_partition_is_told(reads: str) -> None:
    view = judge(replace(OWN, partition=reads))
    assert view.level == "cpuset"
    assert "lost" in view.reason
    assert reads in view.reason


def test_a_slice_that_is_gone_leaves_nothing() -> None:
    assert judge(replace(OWN, partition="", effective="")).level == "none"


def test_a_shared_cpuset_says_why_it_is_no_partition() -> None:
    view = judge(replace(OWN, made="cpuset", partition="member", why="the kernel refused it"))
    assert (view.level, view.reason) == ("cpuset", "the kernel refused it")


def test_threads_on_some_cpus_only_are_affinity() -> None:
    facts = RtFacts(made="none", why="not wanted", online=ONLINE, threads=threads((2, 3), (2, 3)))
    view = judge(facts)
    assert (view.level, view.cpus, view.reason) == ("affinity", "2-3", "not wanted")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (RtFacts(made="none", why="there is no CPU to spare", online=ONLINE), "no CPU to spare"),
        (RtFacts(online=ONLINE), "stoker-slice.service has not run"),
        (RtFacts(online=ONLINE, units=False), "child of stokerd"),
    ],
)
def test_nothing_says_why(facts: RtFacts, words: str) -> None:
    view = judge(facts)
    assert view.level == "none"
    assert words in view.reason


def test_a_childs_runner_never_claims_the_slice_of_a_service_beside_it() -> None:
    assert judge(replace(OWN, units=False)).level == "none"


@pytest.mark.parametrize(
    ("masks", "pinning"),
    [
        (((2,), (3,)), "one-to-one"),
        (((2,), (2,)), "set"),
        (((2, 3), (2, 3)), "set"),
        ((ONLINE, ONLINE), "free"),
        ((), "unseen"),
    ],
)
def test_pinning(masks: tuple[tuple[int, ...], ...], pinning: str) -> None:
    assert judge(replace(OWN, threads=threads(*masks))).pinning == pinning


def test_a_reader_that_is_free_does_not_hide_that_the_others_are_pinned() -> None:
    facts = RtFacts(online=ONLINE, threads=threads((2,), (3,), ONLINE))
    view = judge(facts)
    assert (view.level, view.cpus, view.pinning) == ("affinity", "2-3", "one-to-one")


def test_why_there_is_not_even_a_mask_is_told_beside_why_there_is_no_cpuset() -> None:
    facts = RtFacts(units=False, online=ONLINE, unheld="its CPUs are alike")
    assert judge(facts).reason.endswith("not a unit in stoker.slice; its CPUs are alike")
    held = replace(facts, threads=threads((2, 3)), unheld="")
    assert judge(held).reason.endswith("not a unit in stoker.slice")


def test_the_nicest_treatment_counts() -> None:
    assert judge(replace(OWN, threads=(ThreadFacts((2,)), ThreadFacts((3,), nice=-10)))).nice == -10
    assert judge(OWN).nice == 0


def test_scheduling_names_every_policy_and_warns_of_fifo_without_a_partition() -> None:
    fifo = threads((2,), policy=1, priority=10) + threads((3,), policy=0)
    view = judge(replace(OWN, made="cpuset", partition="member", threads=fifo, rt_runtime_us=-1))
    assert view.scheduling == "fifo:10"
    assert any("starve" in note for note in view.notes)
    assert any("sched_rt_runtime_us" in note for note in view.notes)
    plain = judge(replace(OWN, threads=threads((2,), (3,)), locked_bytes=4096))
    assert plain.scheduling == "other"
    assert not any("locked" in note for note in plain.notes)


def test_without_a_runner_nobody_is_said_to_hide_its_threads() -> None:
    assert judge(replace(OWN, running=False)).notes == (
        "no model is loaded: there are no threads to look at",
    )
    assert "another user's" in judge(OWN).notes[0]
