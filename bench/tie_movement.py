"""How far company moves the choice between two tokens: ``python -m bench.tie_movement``.

A greedy answer alone, then the same question again and again beside others' answers and others'
cached conversations. At each token after the same text: by how much the distance between the token
chosen alone and each of its rivals has changed. ``near_ties.NEAR_NATS`` stands on this.
"""

from __future__ import annotations

import argparse
import random
import statistics
import threading
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Final

from bench.near_ties import NEAR_NATS, Choice
from bench.over_bus import SLOTS, OverBus
from bench.runner_client import default_model
from bench.soak import QUESTIONS, greedy
from stoker_client import Stoker

TOKENS: Final = 40
RIVAL_NATS: Final = 2.0
"""Who is further behind than this is no rival."""


def movements(alone: Sequence[Choice], beside: Sequence[Choice]) -> list[float]:
    """Of every rival's distance, in nats, as far as both texts are the same; and of the token
    where they part, which had overtaken the one chosen alone."""
    found = list[float]()
    for one, other in zip(alone, beside, strict=False):
        before, after = dict(one.others), dict(other.others)
        if one.text != other.text:
            if other.text in before and one.text in after:
                found.append(before[other.text] + after[one.text])
            break
        found += [
            abs(before[text] - after[text])
            for text in before.keys() & after.keys()
            if before[text] <= RIVAL_NATS
        ]
    return found


def in_company(
    side: OverBus, alone: dict[str, tuple[Choice, ...]], seconds: float, seed: int
) -> list[float]:
    """Every slot is busy, with answers and conversations that begin and end at any time."""
    found, until_s = list[float](), time.monotonic() + seconds
    serial = count()

    def app(number: int) -> None:
        chance = random.Random(f"{seed} {number}")
        with Stoker(side.bus.address) as stoker:
            while time.monotonic() < until_s:
                if chance.random() < 0.3:  # a new prefix, whose cells stay
                    words = f"Say something about number {next(serial)}. " * chance.randint(1, 20)
                    stoker.ask(words, max_tokens=chance.randint(1, TOKENS))
                    continue
                question = chance.choice(QUESTIONS)
                found.extend(movements(alone[question], greedy(stoker, question, TOKENS)[1]))

    apps = [threading.Thread(target=app, args=(number,)) for number in range(SLOTS)]
    for one in apps:
        one.start()
    for one in apps:
        one.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tie_movement", description=__doc__)
    parser.add_argument("--model", type=Path, default=default_model())
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    side = OverBus(options.model, options.threads)
    try:
        alone = {question: greedy(side.client, question, TOKENS)[1] for question in QUESTIONS}
        found = sorted(in_company(side, alone, options.seconds, options.seed))
    finally:
        side.close()
    told = [choice for answers in alone.values() for choice in answers]
    tied = sum(any(nats <= NEAR_NATS for _, nats in choice.others) for choice in told)
    print(
        f"{len(found)} distances between tokens: moved by {statistics.median(found):.2f} nats "
        f"(median), {found[int(0.99 * len(found))]:.2f} (99 %), {found[-1]:.2f} at most; "
        f"{NEAR_NATS} are called a tie, "
        f"which {tied} of {len(told)} tokens have"
    )


if __name__ == "__main__":
    main()
