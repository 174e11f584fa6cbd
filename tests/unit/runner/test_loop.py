"""The runner's loop turned on a channel of lists and the echo engine: what waits for what."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

from stoker.events.runner import (
    Answer,
    Beat,
    Cancel,
    Deltas,
    Embed,
    Event,
    Failed,
    Generate,
    Load,
    Tokenize,
)
from stoker.runner.channel import Channel, Closed, Letter
from stoker.runner.echo import EchoEngine
from stoker.runner.engine import Outcome, Run
from stoker.runner.loop import Loop

TEXT = "two words"


class ListChannel:
    def __init__(self, letters: list[Letter]) -> None:
        self.letters, self.sent = deque(letters), list[Event]()
        self.rounds = 0  # so often there is nothing to read before the agent goes

    def next(self, _timeout_s: float) -> Letter | None:
        if self.letters:
            return self.letters.popleft()
        self.rounds -= 1
        return None if self.rounds > 0 else Closed()

    def send(self, event: Event) -> None:
        self.sent.append(event)


class SlowTokenizer(EchoEngine):
    """A second for each query's text."""

    now_s = 0.0

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        self.now_s += 1.0 if text == TEXT else 0.0
        return super().tokenize(text, special=special)


def test_slow_queries_wait_for_one_another_but_jobs_and_beats_come_between() -> None:
    load = Load(id="l", model="echo", path="/dev/null", context_tokens=0, slots=1, threads=1,
                threads_batch=1, batch_tokens=16, prefill_target_ms=200)  # fmt: skip
    queries = [Tokenize(f"q{number}", TEXT) for number in range(4)]
    job = Generate(job="j", prompt="!long 100", max_tokens=100)
    engine = SlowTokenizer()
    channel = ListChannel([load, job, *queries])
    loop = Loop(
        engine, lambda _note: cast(Channel, channel), pings=False, clock=lambda: engine.now_s
    )
    loop.run()
    kinds = [type(event) for event in channel.sent if isinstance(event, Answer | Deltas | Beat)]
    answers = [index for index, kind in enumerate(kinds) if kind is Answer]
    assert len(answers) == 4
    for first, second in pairwise(answers):
        assert {Deltas, Beat} <= set(kinds[first:second])


class SlowVectors(EchoEngine):
    """A second for each chunk of a vector, a tenth for each step; what was done when."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s, self.done = 0.0, ""

    def step(self, runs: Sequence[Run]) -> Outcome:
        self.now_s, self.done = self.now_s + 0.1, self.done + "s"
        return super().step(runs)

    def embed(self, tokens: Sequence[int], start: int) -> tuple[list[float], int]:
        self.now_s, self.done = self.now_s + 1.0, self.done + "e"
        vector, _end = super().embed(tokens, start)
        return vector, min(start + 1, len(tokens))


def _vectors_beside(job: Generate | None, *more: Letter) -> tuple[SlowVectors, list[Event]]:
    load = Load(id="l", model="echo", path="/dev/null", slots=1, batch_tokens=16)
    engine = SlowVectors()
    channel = ListChannel([load, *([job] if job else []), Embed("e", ("a b c d",)), *more])
    channel.rounds = 400
    loop = Loop(
        engine, lambda _note: cast(Channel, channel), pings=False, clock=lambda: engine.now_s
    )
    loop.run()
    return engine, channel.sent


def test_vectors_take_a_quarter_of_the_time_while_answers_are_made() -> None:
    job = Generate(job="j", prompt="!long 300", max_tokens=300)
    engine, sent = _vectors_beside(job)
    assert any(isinstance(event, Answer) and event.id == "e" for event in sent)
    chunks = [index for index, what in enumerate(engine.done) if what == "e"]
    assert len(chunks) == 4
    assert all(second - first > 29 for first, second in pairwise(chunks))


def test_vectors_alone_wait_for_nothing() -> None:
    engine, _sent = _vectors_beside(None)
    assert "eeee" in engine.done


def test_a_cancelled_vector_leaves_its_place_to_the_next() -> None:
    engine, sent = _vectors_beside(None, Embed("f", ("a b",)), Cancel("e"))
    told = [event for event in sent if isinstance(event, Answer | Failed)]
    assert [(type(event), event.id) for event in told] == [(Failed, "e"), (Answer, "f")]
    assert engine.done.count("e") < 2 + 4
