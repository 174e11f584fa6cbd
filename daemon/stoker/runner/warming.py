"""The first steps of a fresh context: they read the weights and teach the cost of a token."""

from __future__ import annotations

import time
from typing import Final

from stoker.events.prompt import Sampling
from stoker.runner.engine import Engine, Facts, Run

TOKENS: Final = 32


def warm_up(engine: Engine, facts: Facts) -> tuple[float, int]:
    """Milliseconds that a step of so many prompt tokens took; sequence 0 is empty again."""
    tokens = (engine.encode("warm up") or [0]) * TOKENS
    tokens = tokens[: min(TOKENS, facts.batch_tokens, facts.context_tokens - 1)]
    engine.open(0, Sampling(temperature=0.0), 0)
    try:
        for _ in range(2):  # the first one reads the weights, the second one is measured
            engine.truncate(0, 0)
            started_s = time.monotonic()
            engine.step([Run(0, 0, tokens, False)])
        return (time.monotonic() - started_s) * 1e3, len(tokens)
    finally:
        engine.close(0)
        engine.clear(0)
