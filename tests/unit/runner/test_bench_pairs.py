"""The interval of the benchmark covers the truth and shrinks with more pairs."""

from __future__ import annotations

import random

import pytest
from bench.pairs import summarize


def test_equal_pairs_have_ratio_one() -> None:
    summary = summarize([(5.0, 5.0)] * 4)
    assert (summary.ratio, summary.low, summary.high) == (1.0, 1.0, 1.0)


def test_common_noise_cancels_in_the_ratio() -> None:
    draw = random.Random(1)
    pairs = [(0.9 * speed, speed) for speed in (draw.uniform(10, 200) for _ in range(20))]
    assert summarize(pairs).ratio == pytest.approx(0.9)


def test_interval_covers_the_median_and_shrinks() -> None:
    draw = random.Random(2)
    pairs = [(draw.gauss(0.97, 0.05), 1.0) for _ in range(400)]
    few, many = summarize(pairs[:20]), summarize(pairs)
    assert many.low <= 0.97 <= many.high
    assert many.high - many.low < few.high - few.low
