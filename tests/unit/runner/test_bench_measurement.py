"""A benchmark's verdicts: what counts as met, and that every key has a row of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.inference import REGISTRY, row
from bench.measurement import Measurement, Setting
from bench.pairs import Pair


def nothing(_setting: Setting) -> Iterator[Pair]:
    return iter(())


def made(target: float | None, *, higher: bool = True, difference: bool = False) -> Measurement:
    return Measurement("k", "t", "u", "p", target, nothing, higher=higher, difference=difference)


def test_every_measurement_has_a_key_of_its_own() -> None:
    keys = [item.key for item in REGISTRY]
    assert len(keys) == len(set(keys))
    assert all(item.title and item.unit and item.peer for item in REGISTRY)


def test_the_kept_results_have_every_key(root: Path) -> None:
    """A run that was cut off, or of some keys, must not pass for a whole one."""
    found = json.loads((root / "bench/results/inference.json").read_text())["metrics"]
    assert list(found) == [item.key for item in REGISTRY]


@pytest.mark.parametrize(("ours", "met"), [(1.2, True), (1.1, True), (1.05, False)])
def test_more_is_met_from_the_target_on(ours: float, met: bool) -> None:
    found = row(made(1.1), [(ours, 1.0)] * 5)
    assert (found["ratio"], found["target"], found["met"]) == (ours, 1.1, met)


@pytest.mark.parametrize(("ours", "met"), [(1.4, True), (1.6, False)])
def test_less_is_met_up_to_the_target(ours: float, met: bool) -> None:
    assert row(made(1.5, higher=False), [(ours, 1.0)] * 5)["met"] is met


def test_a_difference_is_judged_as_one_and_its_ratio_is_told() -> None:
    found = row(made(2.0, higher=False, difference=True), [(91.5, 75.0)] * 3 + [(91.5, 90.0)] * 5)
    assert (found["difference"], found["met"]) == (1.5, False)
    found = row(made(2.0, higher=False, difference=True), [(91.5, 90.0)] * 5)
    assert (found["difference"], found["met"], found["ratio"]) == (1.5, True, 1.0167)


def test_every_row_has_the_same_keys() -> None:
    keys = {"value", "unit", "peer", "ratio", "target", "met", "interval", "pairs"}
    for item in (made(1.0), made(None), made(2.0, difference=True)):
        assert keys == row(item, [(1.0, 1.0)] * 3).keys() - {"difference"}


def test_a_median_between_far_ends_of_noise_is_not_met() -> None:
    assert row(made(1.0), [(0.5, 1.0), (1.2, 1.0), (3.0, 1.0)])["met"] is False


def test_noise_that_is_all_on_the_right_side_does_not_matter() -> None:
    assert row(made(1.5, higher=False), [(0.6, 1.0), (0.9, 1.0), (1.4, 1.0)])["met"] is True
    assert row(made(1.0), [(1.1, 1.0), (1.5, 1.0), (2.9, 1.0)])["met"] is True
    assert row(made(1.5, higher=False), [(0.6, 1.0), (0.9, 1.0), (1.6, 1.0)])["met"] is False


def test_what_has_no_target_has_no_verdict() -> None:
    found = row(made(None), [(1.0, 1.0)] * 3)
    assert (found["met"], found["target"]) == (None, None)
