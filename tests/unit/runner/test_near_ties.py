"""The soak's judge of greedy answers: a tie of the model is told from a wrong word."""

from __future__ import annotations

import pytest
from bench.near_ties import NEAR_NATS, Choice, choices, undecided
from bench.tie_movement import movements

FAR = NEAR_NATS * 2
NEAR = NEAR_NATS / 2
REFERENCE = (
    Choice(" Iron", ((" The", NEAR),)),
    Choice(" is", ((" was", NEAR), (" can", FAR), (" i", NEAR))),
    Choice(" a metal", ((" an ore", FAR),)),
)


@pytest.mark.parametrize(
    ("said", "explained"),
    [
        ("Iron was hot", True),
        ("The ore", True),  # the first word, whose space is stripped
        ("Iron wa", True),  # cut within the other token
        ("Iron can be hot", False),  # the model did not doubt here
        ("Iron is an ore", False),
        ("Bread is", False),
        ("Iron is on", False),  # " i" begins " is" too: it explains nothing that comes after
        ("", False),
    ],
)
def test_only_a_word_that_was_nearly_chosen_explains_another_answer(
    said: str, explained: bool
) -> None:
    assert undecided(said, REFERENCE) is explained


def test_distances_are_read_from_log_probabilities_without_the_chosen_token() -> None:
    top = [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -0.75}]
    made = choices([{"token": "a", "logprob": -0.5, "top_logprobs": top}])
    assert made == (Choice("a", (("b", 0.25),)),)


def test_company_moves_distances_up_to_where_the_texts_part() -> None:
    alone = (Choice("a", (("b", 0.5), ("far", 3.0))), Choice("c", (("d", 0.25),)), Choice("e"))
    beside = (Choice("a", (("b", 0.75), ("far", 1.0))), Choice("d", (("c", 0.5),)), Choice("z"))
    assert movements(alone, beside) == [0.25, 0.75]
