"""Saved states come from slow storage while others go on; a context that shrinks saves none."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from tests.unit.runner.test_cache import WORDS, Rig
from tests.unit.runner.test_loop import ListChannel

from stoker.events.runner import Answer, Beat, Delta, Deltas, Generate, Load, Resize
from stoker.runner.cache import SequenceCache
from stoker.runner.channel import Channel, Letter
from stoker.runner.echo import EchoEngine
from stoker.runner.loop import FETCH_LOOK_S, Loop
from stoker.runner.states import Run


class SlowDisk(Rig):
    """What the states thread would do is done when the test says so."""

    slow = False

    def _run(self, work: Callable[[], None]) -> None:
        if self.slow:
            self.written.append(work)
        else:
            work()

    def send(self, job: str, keep: str, prompt: str = WORDS, tokens: int = 3) -> None:
        self.steps.accept(
            Generate(job, prompt=prompt, raw=True, scope="7", keep=keep, max_tokens=tokens)
        )

    def work(self, times: int = 100) -> None:
        for _ in range(times):
            self.steps.work()

    def last(self, job: str) -> Delta | None:
        ends = [item for item in self.out if item.job == job and (item.done or item.error)]
        return ends[0] if ends else None

    def cached(self, job: str) -> object:
        end = self.last(job)
        assert end is not None
        assert end.done is not None, end.error
        usage = end.done["usage"]
        assert isinstance(usage, dict)
        return usage["cached_tokens"]


@pytest.fixture
def rig(tmp_path: Path) -> SlowDisk:
    """A fresh runner that finds two conversations on a slow disk."""
    before = Rig(tmp_path)
    for keep in ("talk", "more"):
        before.ask(WORDS, keep=keep)
        before.steps.cache.rest()
    made = SlowDisk(tmp_path)
    made.slow = True
    return made


def test_others_go_on_while_a_state_is_read(rig: SlowDisk) -> None:
    rig.send("a", "talk")
    rig.work(1)
    assert rig.steps.fetching
    rig.send("b", "", "other words", 3)
    rig.work()
    assert rig.last("a") is None
    assert rig.last("b") is not None
    assert rig.steps.fetching
    rig.written.pop()()
    rig.work()
    assert rig.cached("a") == 39
    assert not rig.steps.fetching
    assert rig.counts()["restores"] == 1


def test_the_steps_of_others_are_usual_ones_while_a_state_is_read(rig: SlowDisk) -> None:
    """Their tokens may be gathered; only a job that can come in now makes a step another one."""
    rig.send("b", "", "other words", 50)
    rig.work(3)
    assert rig.steps.steady
    rig.send("a", "talk")
    assert not rig.steps.steady
    rig.work(1)
    assert rig.steps.steady
    rig.send("c", "", "more words", 3)
    assert not rig.steps.steady


def test_one_state_is_read_at_a_time_and_each_gets_its_turn(rig: SlowDisk) -> None:
    rig.send("a", "talk")
    rig.send("b", "more")
    rig.work()
    assert len(rig.written) == 1
    rig.written.pop()()
    rig.work()
    assert rig.cached("a") == 39
    if rig.written:  # by now the cells may hold what it needs
        rig.written.pop()()
    rig.work()
    assert rig.cached("b") == 39


def test_a_job_that_ends_while_its_state_is_read_leaves_the_file_and_no_memory(
    rig: SlowDisk, tmp_path: Path
) -> None:
    rig.send("a", "talk")
    rig.work(1)
    rig.steps.cancel("a")
    rig.work(1)
    assert not rig.steps.fetching
    rig.send("c", "talk")
    rig.work(1)
    rig.written[0]()  # the first one, whom nobody waits for
    rig.work(5)
    assert rig.last("c") is None
    rig.written[1]()
    rig.work()
    assert rig.cached("c") == 39
    assert sum(path.suffix == ".state" for path in tmp_path.iterdir()) == 2


def test_damage_found_in_the_thread_costs_a_slow_prefill_only(
    rig: SlowDisk, tmp_path: Path
) -> None:
    for path in tmp_path.iterdir():
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    rig.send("a", "talk")
    rig.work(1)
    rig.written.pop()()
    rig.work()
    assert rig.cached("a") == 0
    assert rig.counts()["states_dropped"] == 1


def test_cells_that_are_better_by_then_are_taken_and_the_file_stays(
    rig: SlowDisk, tmp_path: Path
) -> None:
    rig.send("a", "talk")
    rig.work(1)
    rig.send("b", "", WORDS)
    rig.work()
    rig.written.pop()()
    rig.work()
    assert rig.cached("a") == 39
    assert rig.counts()["restores"] == 0
    assert sum(path.suffix == ".state" for path in tmp_path.iterdir()) == 2


def test_what_is_forgotten_while_it_is_read_is_not_used(rig: SlowDisk) -> None:
    rig.send("a", "talk")
    rig.work(1)
    rig.steps.forget("7", "talk")
    rig.written.pop()()
    rig.work()
    assert rig.cached("a") == 0
    assert rig.counts()["restores"] == 0


def test_a_deadline_passes_while_a_state_is_read(rig: SlowDisk) -> None:
    rig.steps.accept(Generate("a", prompt=WORDS, raw=True, scope="7", keep="talk",
                              deadline_ms=1000))  # fmt: skip
    rig.work(1)
    rig.now_s += 2.0
    rig.work(1)
    end = rig.last("a")
    assert end is not None
    assert end.error is not None
    assert end.error["code"] == "deadline-exceeded"
    assert not rig.steps.fetching


LOAD = Load("l", "echo", "/dev/null", slots=2, context_tokens=200, cached_prefixes=3,
            cache_tokens=200, batch_tokens=256, state_bytes=1 << 20)  # fmt: skip
JOB = Generate("a", prompt=WORDS, raw=True, scope="7", keep="talk", max_tokens=3)


class WaitingChannel(ListChannel):
    """Time passes only while the loop waits; ``last`` comes when all is done."""

    def __init__(self, letters: list[Letter], rounds: int, last: Letter | None = None) -> None:
        super().__init__(letters)
        self.rounds, self.half, self.last = rounds, rounds // 2, last
        self.now_s, self.waits = 0.0, list[float]()

    def next(self, timeout_s: float) -> Letter | None:
        self.now_s += timeout_s
        self.waits.append(timeout_s)
        if self.rounds == self.half and self.last is not None:
            self.letters.append(self.last)
            self.last = None
        return super().next(timeout_s)


def serve(channel: WaitingChannel, folder: Path) -> None:
    loop = Loop(EchoEngine(), lambda _note: cast(Channel, channel), pings=False,
                clock=lambda: channel.now_s, scratch=folder)  # fmt: skip
    loop.run()


def states_thread(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "stoker.runner.loop.SequenceCache", functools.partial(SequenceCache, run=run)
    )


def test_beats_go_on_while_a_state_is_read_and_the_loop_does_not_spin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states_thread(lambda work: work(), monkeypatch)
    serve(WaitingChannel([LOAD, JOB], 100), tmp_path)
    assert list(tmp_path.iterdir())
    states_thread(lambda _work: None, monkeypatch)  # it never ends
    channel = WaitingChannel([LOAD, JOB], 1000)
    serve(channel, tmp_path)
    assert sum(isinstance(event, Beat) for event in channel.sent) >= 8  # in ten seconds
    assert not any(isinstance(event, Deltas) for event in channel.sent)
    assert channel.waits.count(FETCH_LOOK_S) > 900


@pytest.mark.parametrize(("context", "copies"), [(100, 0), (200, 1)])
def test_a_context_that_shrinks_copies_nothing_to_save_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: int, copies: int
) -> None:
    """Memory is short then; when one grows it is not."""
    made: list[int] = []
    plain = EchoEngine.save

    def save(self: EchoEngine, seq: int) -> memoryview | None:
        made.append(seq)
        return plain(self, seq)

    monkeypatch.setattr(EchoEngine, "save", save)
    states_thread(lambda work: work(), monkeypatch)
    load = replace(LOAD, state_idle_ms=3_600_000)
    resize = Resize("r", slots=2, context_tokens=context, cache_tokens=200)
    channel = WaitingChannel([load, JOB], 200, last=resize)
    serve(channel, tmp_path)
    assert any(isinstance(event, Answer) and event.id == "r" for event in channel.sent)
    assert len(made) == copies


def test_a_conversation_too_large_to_be_kept_is_not_copied(tmp_path: Path) -> None:
    rig = Rig(tmp_path, state_bytes=100)
    facts = rig.engine.facts()
    assert facts is not None
    rig.steps.leave()
    request = replace(LOAD, state_bytes=100)
    rig.steps.begin(request, replace(facts, kv_bytes=10 * facts.cells))
    rig.engine.save = lambda seq: pytest.fail("copied")  # type: ignore[method-assign]
    rig.ask(WORDS, keep="talk")
    rig.steps.cache.rest()
    assert list(tmp_path.iterdir()) == []


def test_a_state_longer_than_the_context_waits_for_a_longer_one(
    rig: SlowDisk, tmp_path: Path
) -> None:
    rig.load(context_tokens=40, slots=1)
    rig.send("a", "talk", "".join(f" w{n}" for n in range(36)))
    rig.work()
    assert rig.cached("a") == 0
    assert not rig.written
    assert sum(path.suffix == ".state" for path in tmp_path.iterdir()) == 2
