"""The runner's loop turned on a channel of lists and the echo engine: what waits for what."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import cast

from stoker.events.runner import Answer, Beat, Deltas, Event, Generate, Load, Tokenize
from stoker.runner.channel import Channel, Closed, Letter
from stoker.runner.echo import EchoEngine
from stoker.runner.loop import Loop

TEXT = "two words"


class ListChannel:
    def __init__(self, letters: list[Letter]) -> None:
        self.letters, self.sent = deque(letters), list[Event]()

    def next(self, _timeout_s: float) -> Letter | None:
        return self.letters.popleft() if self.letters else Closed()

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
