"""Whether a greedy answer left another one only where the model itself was undecided. Pure.

A batch sums in another order than a single run: log-probabilities move by some tenths, and where
the two best tokens are that close either may win. Anything else is a wrong or another's word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

NEAR_NATS: Final = 1.0
"""The distance between two tokens moves by up to 0.82 (26,204 of them, ``bench.tie_movement``;
docs/inference.md, "Batches and determinism"): each token alone moves less, but one may rise while
the other falls."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One token of the reference. ``others``: (text, how many nats it is behind)."""

    text: str
    others: tuple[tuple[str, float], ...] = ()


def choices(records: Sequence[Mapping[str, Any]]) -> tuple[Choice, ...]:
    """From the ``lp`` records of a stream (OpenAI's form)."""
    made = []
    for record in records:
        text, own = str(record["token"]), float(record["logprob"])
        rest = [row for row in record["top_logprobs"] if row["token"] != text]
        others = tuple((str(row["token"]), own - float(row["logprob"])) for row in rest)
        made.append(Choice(text, others))
    return tuple(made)


def shared(one: str, other: str) -> int:
    """How many characters both begin with."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def undecided(said: str, reference: Sequence[Choice]) -> bool:
    """``said`` follows ``reference`` up to a token that another one nearly equalled, and goes on
    with that other one. ``said`` has no white space around it."""
    whole = "".join(choice.text for choice in reference)
    begin = len(whole.lstrip()) - len(whole)  # of the token, in ``said``
    at = shared(said, whole.strip())
    for choice in reference:
        if begin > at:
            return False
        for text, nats in choice.others:
            token = text[max(0, -begin) :]
            parts = begin + len(text) > at  # an equal beginning explains nothing
            if nats <= NEAR_NATS and parts and _goes_on(said[max(0, begin) :], token):
                return True
        begin += len(choice.text)
    return False


def _goes_on(rest: str, token: str) -> bool:
    """An answer that was cut may end within the token; white space at its end was stripped."""
    return bool(rest) and (rest.startswith(token) or token.startswith(rest))
