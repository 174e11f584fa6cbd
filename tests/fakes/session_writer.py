"""A process that writes conversations until it is killed: ``python -m … FILE SEED``.

Says each finished step on stdout, so that whoever kills it knows what must be there.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from stoker.core import conversation
from stoker.drivers.session_store import SqliteSessionStore
from stoker.events.sessions import Session, Settings, Turn

UID = 1000


def main(path: str, seed: str) -> None:
    chance = random.Random(seed)
    store = SqliteSessionStore(Path(path))
    store.open()
    store.create(Session("a", UID, Settings(), 1.0, 1.0))
    say("created")
    for number in range(1, 10_000):
        question = f"question {number} " + "q" * chance.randrange(20_000)
        turn = store.begin_turn("a", UID, Turn(0, question, asked_s=float(number)))
        say(f"begun {number}")
        ended = conversation.ended(
            turn, f"answer {number} " + "a" * chance.randrange(20_000), finish_reason="stop",
            error_code="", truncated=False, tokens=(1, 1), now_s=number + 0.5,
        )  # fmt: skip
        store.finish_turn("a", UID, ended)
        say(f"ended {number}")
        if chance.random() < 0.2:
            store.checkpoint()
        if chance.random() < 0.1:
            store.trim("a", UID, 100_000)


def say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
