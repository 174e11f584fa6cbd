"""A measure counts what it ran, warms up first, and leaves threads and cache as they were."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from stoker.errors import Busy, InvalidRequest
from stoker.events.runner import Answer, Event, Failed, Load, Measure, SetThreads
from stoker.runner.desk import Desk
from stoker.runner.echo import EchoEngine
from stoker.runner.engine import Outcome, Run
from stoker.runner.measuring import Measuring
from stoker.runner.pacing import LONGEST_REST_S, Pacing


class Timed(EchoEngine):
    """A token takes 10 ms on one thread, and half on two."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.batches: list[int] = []

    def step(self, runs: Sequence[Run]) -> Outcome:
        count = sum(len(run.tokens) for run in runs)
        self.batches.append(count)
        self.now_s += 0.01 * count / int(str(self.stats()["threads"]))
        return super().step(runs)


def loaded() -> Timed:
    engine = Timed()
    engine.load(Load("l", "m", "/m", context_tokens=64, threads=2, threads_batch=2),
                lambda _part: True)  # fmt: skip
    return engine


def run(engine: Timed, phase: str, threads: int, limit_s: float = 1.0) -> dict[str, object]:
    facts = engine.facts()
    assert facts is not None
    measuring = Measuring(
        "q", phase, threads, limit_s, facts, (2, 2), lambda: engine.now_s, lambda: 0.0
    )
    for _ in range(10_000):
        found = measuring.step(engine)
        if found is not None:
            return dict(found)
    raise AssertionError("it never ends")


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_more_threads_measure_as_faster_and_are_given_back(phase: str) -> None:
    engine = loaded()
    rates = {}
    for threads in (1, 2):
        found = run(engine, phase, threads)
        rates[threads] = float(str(found["tokens"])) / float(str(found["wall_s"]))
        assert engine.stats()["threads"] == 2
    assert rates[1] == pytest.approx(100.0)
    assert rates[2] == pytest.approx(200.0)
    facts = engine.facts()
    assert facts is not None
    assert engine.length(facts.sequences) == 0


def test_prefill_grows_its_chunk_to_the_size_that_takes_half_a_second() -> None:
    engine = loaded()
    run(engine, "prefill", 1)
    assert engine.batches[0] == 8  # a guess that no board takes seconds for
    assert max(engine.batches) == 32  # of a context of 64


def test_a_slow_board_keeps_small_chunks_so_that_it_is_heard_of() -> None:
    engine = loaded()
    engine.step = lambda runs: slow(engine, runs)  # type: ignore[method-assign]
    run(engine, "prefill", 1, 2.0)
    assert max(engine.batches) == 8


def slow(engine: Timed, runs: Sequence[Run]) -> Outcome:
    engine.now_s += 0.9
    return Timed.step(engine, runs)


class Asked:
    def __init__(self, engine: EchoEngine, occupied: bool = False) -> None:
        self.said: list[Event] = []
        self.duties: list[float] = []
        self.desk = Desk(
            engine, self.said.append, dict, occupied=lambda: occupied, pace=self.duties.append
        )


@pytest.mark.parametrize(
    ("query", "error"),
    [
        (Measure("q", "sleep", 1, 10), InvalidRequest),
        (Measure("q", "decode", 0, 10), InvalidRequest),
        (Measure("q", "decode", 1, 0), InvalidRequest),
    ],
)
def test_an_absurd_measure_is_refused(query: Measure, error: type[InvalidRequest]) -> None:
    asked = Asked(loaded())
    asked.desk.handle(query)
    assert isinstance(asked.said[0], Failed)
    assert asked.said[0].code == error.code
    assert not asked.desk.busy


def test_nobody_is_measured_while_others_are_answered() -> None:
    asked = Asked(loaded(), occupied=True)
    asked.desk.handle(Measure("q", "decode", 1, 10))
    assert isinstance(asked.said[0], Failed)
    assert asked.said[0].code == Busy.code


def test_who_cancels_a_measure_leaves_the_threads_that_were_set_meanwhile() -> None:
    engine = loaded()
    asked = Asked(engine)
    asked.desk.handle(Measure("q", "decode", 1, 60_000))
    asked.desk.work()
    assert engine.stats()["threads"] == 1
    asked.desk.handle(SetThreads("s", 2, 1, 0.5))
    assert engine.stats()["threads"] == 1  # what is measured stays measured
    asked.desk.cancel("q")
    assert engine.stats() == {"threads": 2, "threads_batch": 1}
    assert asked.duties == [0.5]
    assert isinstance(asked.said[0], Answer)


def test_a_duty_rests_in_proportion_and_never_for_long() -> None:
    pacing = Pacing()
    pacing.worked(0.0, 1.0)
    assert pacing.rest_s(1.0) == 0.0
    pacing.set(0.25)
    pacing.worked(1.0, 1.1)
    assert pacing.rest_s(1.1) == pytest.approx(0.3)
    assert pacing.rest_s(1.5) == 0.0
    pacing.set(0.0)
    pacing.worked(2.0, 3.0)
    assert pacing.rest_s(3.0) == LONGEST_REST_S
    pacing.set(1.0)
    assert pacing.rest_s(3.0) == 0.0
