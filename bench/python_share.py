"""How much of a decode step is Python: ``python -m bench.python_share``.

The real loop on the real engine in this process; what the loop writes is encoded and thrown
away. CPU time of the loop's thread is counted, inside llama.cpp (decode, sample) and outside,
so that other programs on the machine change little.
"""

from __future__ import annotations

import argparse
import datetime
import os
import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from bench.random_model import SHAPES, random_model
from bench.runner_client import default_model
from stoker.core import frames
from stoker.events.prompt import Sampling
from stoker.events.runner import Deltas, Event, Generate, Load, to_body
from stoker.runner import channel
from stoker.runner.channel import Letter
from stoker.runner.library import Library
from stoker.runner.llama import LlamaEngine
from stoker.runner.loop import Loop


@dataclass(frozen=True, slots=True)
class Share:
    """Of steps in which every sequence decodes; milliseconds of CPU time a step, medians."""

    sequences: int
    steps: int
    step_ms: float
    python_ms: float

    @property
    def python(self) -> float:
        return self.python_ms / self.step_ms


class _Null:
    """A channel with the letters it was given; it does all of a send but the write."""

    def __init__(self, letters: list[Letter]) -> None:
        self._letters = deque(letters)
        self.over = 0
        self._null = os.open(os.devnull, os.O_WRONLY)

    def next(self, _timeout_s: float) -> Letter | None:
        return self._letters.popleft() if self._letters else None

    def send(self, event: Event) -> None:
        data = channel._texts(event) if isinstance(event, Deltas) else None
        os.write(self._null, data or frames.encode(to_body(event)))
        if isinstance(event, Deltas):
            self.over += sum(
                item.done is not None or item.error is not None for item in event.items
            )


class _Clocked:
    """A C function and the CPU time of this thread that was spent in it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.spent_ns = 0

    def __call__(self, *given: Any) -> Any:
        before_ns = time.thread_time_ns()
        result = self._function(*given)
        self.spent_ns += time.thread_time_ns() - before_ns
        return result


def measure(
    model: Path, sequences: int, *, tokens: int = 96, threads: int = 0, greedy: bool = False
) -> Share:
    """Raises StokerError when the model cannot be loaded."""
    engine = LlamaEngine(Library(), now=lambda: datetime.datetime.now().astimezone())
    decode = engine._decode = _Clocked(engine._decode)
    sample = engine._sample = _Clocked(engine._sample)
    threads = threads or os.cpu_count() or 1
    load = Load("l", "m", str(model), context_tokens=1024, slots=sequences, threads=threads,
                threads_batch=threads)  # fmt: skip
    sampling = Sampling(temperature=0.0) if greedy else Sampling(seed=1)
    jobs: list[Letter] = [
        Generate(
            f"job-{n}",
            prompt=f"Tell me {n} long stories.",
            sampling=sampling,
            stop=("\0",),
            max_tokens=tokens,
        )
        for n in range(sequences)
    ]
    null = _Null([load, *jobs])
    loop = Loop(engine, lambda _note: cast(channel.Channel, null), pings=False)
    rounds: list[tuple[int, int]] = []
    while null.over < sequences:
        steady = loop._steps.active == sequences and loop._steps.steady
        inside, begun_ns = decode.spent_ns + sample.spent_ns, time.thread_time_ns()
        loop._turn()
        spent_ns = time.thread_time_ns() - begun_ns
        if steady and loop._steps.active == sequences:
            rounds.append((spent_ns, spent_ns - (decode.spent_ns + sample.spent_ns - inside)))
    engine.unload()
    step_ns = statistics.median(step for step, _ in rounds)
    python_ns = statistics.median(python for _, python in rounds)
    return Share(sequences, len(rounds), step_ns / 1e6, python_ns / 1e6)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=default_model())
    parser.add_argument("--random", choices=sorted(SHAPES), help="a random model instead")
    parser.add_argument("--tokens", type=int, default=96)
    options = parser.parse_args()
    model = random_model(options.random) if options.random else options.model
    for sequences in (1, 4):
        for greedy in (True, False):
            share = measure(model, sequences, tokens=max(options.tokens, 32), greedy=greedy)
            print(
                f"{model.name} {sequences} sequences, {'greedy' if greedy else 'sampled'}: "
                f"{share.step_ms:.2f} ms a step, Python {share.python_ms:.3f} ms "
                f"= {share.python:.1%} ({share.steps} steps)"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
