"""Which CPUs the model gets: the fastest, one a core, never CPU 0's core."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.core.cpu_choice import Cpu, choose, format_list, parse_list
from stoker.errors import ConfigInvalid

PI5 = [Cpu(n, capacity=1024, max_khz=2_400_000, siblings=(n,)) for n in range(4)]
RK3588 = [Cpu(n, capacity=414 if n < 4 else 1024) for n in range(8)]
PRIME = [Cpu(n, capacity=(325, 870, 1024)[0 if n < 4 else 1 if n < 7 else 2]) for n in range(8)]
HYPERTHREADS = [Cpu(n, max_khz=3_000_000, siblings=(n % 2, n % 2 + 2)) for n in range(4)]


def test_cpu_0_is_left_to_the_system() -> None:
    assert choose(PI5) == (1, 2, 3)


def test_little_cores_are_left_where_there_are_big_ones() -> None:
    assert choose(RK3588) == (4, 5, 6, 7)


def test_a_prime_core_and_its_slightly_slower_neighbours_go_together() -> None:
    assert choose(PRIME) == (4, 5, 6, 7)


def test_of_two_threads_of_a_core_one_is_taken_and_none_of_cpu_0s_core() -> None:
    assert choose(HYPERTHREADS) == (1,)


def test_frequency_decides_where_the_kernel_names_no_capacity() -> None:
    cpus = [Cpu(n, max_khz=khz) for n, khz in enumerate((1_800_000, 1_800_000, 2_400_000))]
    assert choose(cpus) == (2,)


def test_a_single_cpu_cannot_be_spared() -> None:
    assert choose([Cpu(0)]) == ()


def test_a_machine_that_tells_nothing_gives_all_but_cpu_0() -> None:
    assert choose([Cpu(n) for n in range(3)]) == (1, 2)


def test_people_may_choose_or_refuse() -> None:
    assert choose(PI5, "2-3") == (2, 3)
    assert choose(PI5, "none") == ()


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ("7", "not online"),
        ("0-3", "needs a CPU too"),
        ("3-1", "no range"),
        ("fast", "neither"),
        ("", "neither"),
        ("-1", "neither"),
        ("1,,2", "neither"),
        ("0-99999", "no range"),
    ],
)
def test_a_wrong_choice_is_refused_with_its_reason(wanted: str, reason: str) -> None:
    with pytest.raises(ConfigInvalid, match=reason):
        choose(PI5, wanted)


@given(st.sets(st.integers(0, 300), min_size=1))
def test_lists_are_read_as_they_are_written(cpus: set[int]) -> None:
    assert set(parse_list(format_list(cpus))) == cpus


def test_neighbours_are_written_as_a_range() -> None:
    assert format_list([5, 1, 2, 3]) == "1-3,5"
