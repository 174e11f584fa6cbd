"""The reader of the benchmark counts what came, keeps the other load up and drops it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bench.load import Work, aggregate_tokens_s, alternating, percentile, prose, run

FILES = Path("/proc/self/fd")


class Scripted:
    """A side whose answers are there at once: ``tokens`` lines of text and an end."""

    text_mark = b'{"t"'

    def __init__(self) -> None:
        self.asked: list[Work] = []
        self.held: list[int] = []

    def begin(self, work: Work) -> int:
        self.asked.append(work)
        reader, writer = os.pipe()
        os.write(writer, b'{"t": "x"}\n' * work.tokens)
        if work.job_class == "hold":
            self.held.append(writer)
        else:
            os.close(writer)
        return reader

    def tokens(self, answer: bytes) -> int:
        return answer.count(b"\n")


def test_every_answer_is_read_to_its_end() -> None:
    taken = run(Scripted(), [Work("a", 3), Work("b", 5)])
    assert [one.tokens for one in taken] == [3, 5]
    assert all(one.first_ms > 0 and one.ended_s >= one.times[-1] for one in taken)
    assert aggregate_tokens_s(taken) > 0


def test_the_load_beside_is_kept_up_and_dropped_at_the_end() -> None:
    side = Scripted()
    before = len(list(FILES.iterdir()))

    def beside(number: int) -> Work:
        return Work(f"beside {number}", 1, "" if number < 2 else "hold")

    taken = run(side, [Work("a", 2)], beside)
    assert [one.tokens for one in taken] == [2]
    assert [work.prompt for work in side.asked][:2] == ["beside 0", "a"]
    for writer in side.held:
        os.close(writer)
    assert len(list(FILES.iterdir())) == before


def test_what_comes_later_begins_when_all_others_have_said_something() -> None:
    side = Scripted()
    taken = run(side, [Work("a", 2), Work("b", 1)], then=[Work("c", 4)])
    assert [one.tokens for one in taken] == [2, 1, 4]
    assert all(taken[2].began_s > one.times[0] for one in taken[:2])


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile(range(1, 101), 99) == 99
    assert percentile([5.0], 99) == 5.0
    assert percentile([1.0, 9.0], 50) == 1.0


def test_no_two_prompts_share_a_beginning() -> None:
    texts = [prose(20, seed) for seed in range(50)]
    assert len({text.split()[0] for text in texts}) == 50
    assert prose(20, 3) == texts[3]


@pytest.mark.parametrize("pairs", [4, 5])
def test_who_goes_first_alternates(pairs: int) -> None:
    assert [first for _, first in alternating(pairs)] == [index % 2 == 0 for index in range(pairs)]
