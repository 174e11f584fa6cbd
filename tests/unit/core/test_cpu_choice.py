"""Which CPUs the model gets: the fastest, one a core, never CPU 0's core."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.core.cpu_choice import Cpu, choose, format_list, held, isolated, parse_list
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
    cpus = [Cpu(n, max_khz=khz) for n, khz in enumerate((18, 18, 24, 24))]
    assert choose(cpus) == (2, 3)


def test_a_single_cpu_cannot_be_spared() -> None:
    assert choose([Cpu(0)]) == ()


def test_a_machine_that_tells_nothing_gives_all_but_cpu_0() -> None:
    assert choose([Cpu(n) for n in range(3)]) == (1, 2)


def test_equal_capacities_and_unknown_clocks_say_nothing() -> None:
    clocks = (3_300_000, 5_100_000, 5_100_000, 3_300_000)
    assert choose([Cpu(n, 1024, khz) for n, khz in enumerate(clocks)]) == (1, 2)
    unknown = [Cpu(n, max_khz=khz) for n, khz in enumerate((2_000_000, 2_000_000, 2_000_000, 0))]
    assert choose(unknown) == (1, 2, 3)


# Three performance cores with two threads each, eight efficient ones that clock nearly as fast.
HYBRID = [
    *(Cpu(n, max_khz=5_000_000, siblings=(n & ~1, n | 1), kind="core") for n in range(6)),
    *(Cpu(n, max_khz=4_600_000, siblings=(n,), kind="atom") for n in range(6, 14)),
]


def test_efficient_cores_are_left_although_they_clock_as_fast() -> None:
    assert choose(HYBRID) == (2, 4)


def test_a_lone_fast_core_takes_the_next_ones_along() -> None:
    one = [cpu for cpu in HYBRID if cpu.number not in (4, 5)]
    assert choose(one) == (2, *range(6, 14))


DIES = [Cpu(n, 1024, cache=tuple(range(0, 6)) if n < 6 else tuple(range(6, 12))) for n in range(12)]


def test_of_two_caches_the_one_without_cpu_0_is_taken() -> None:
    assert choose(DIES) == (6, 7, 8, 9, 10, 11)


def test_of_two_clusters_too_where_no_cache_is_told() -> None:
    assert choose([Cpu(n, 1024, cluster=n // 4) for n in range(8)]) == (4, 5, 6, 7)


def test_small_clusters_and_caches_of_a_virtual_machine_stay_together() -> None:
    pairs = [Cpu(n, 414 if n < 4 else 1024, cluster=(0, 0, 1, 2)[n // 2]) for n in range(8)]
    assert choose(pairs) == (4, 5, 6, 7)
    assert choose([Cpu(n, cache=(2 * (n // 2), 2 * (n // 2) + 1)) for n in range(6)]) == tuple(
        range(1, 6)
    )


def test_cpus_that_isolcpus_gave_away_are_taken_by_name_only() -> None:
    cpus = [Cpu(n, 1024, isolated=n > 1) for n in range(4)]
    assert choose(cpus) == (1,)
    assert choose(cpus, "2-3") == (2, 3)
    assert isolated(cpus, (2, 3))
    assert not isolated(cpus, (1,))
    assert not isolated(PI5, (2, 3))
    with pytest.raises(ConfigInvalid, match="CPU 2 is isolated"):
        choose(cpus, "1-3")


@pytest.mark.parametrize("cpus", [PI5, HYPERTHREADS, DIES, [Cpu(0), Cpu(1)], [Cpu(0)], []])
def test_threads_are_held_to_no_cpus_where_all_are_alike(cpus: list[Cpu]) -> None:
    assert held(cpus) == ()


@pytest.mark.parametrize(
    ("cpus", "wanted"), [(RK3588, (4, 5, 6, 7)), (PRIME, (4, 5, 6, 7)), (HYBRID, (2, 4))]
)
def test_threads_are_held_to_fast_cpus_where_there_are_slow_ones(
    cpus: list[Cpu], wanted: tuple[int, ...]
) -> None:
    assert held(cpus) == wanted


def test_two_fast_cpus_at_least_are_worth_a_mask() -> None:
    assert held([Cpu(0, 400), Cpu(1, 400), Cpu(2, 400), Cpu(3, 1024)]) == ()


CPUS = st.builds(
    Cpu, st.integers(0, 15), st.sampled_from((0, 400, 1024)), st.sampled_from((0, 1, 2)),
    cluster=st.integers(-1, 2), isolated=st.booleans(), kind=st.sampled_from(("", "core", "atom")),
)  # fmt: skip


@given(st.lists(CPUS, unique_by=lambda cpu: cpu.number))
def test_whatever_a_machine_tells_cpu_0_and_isolated_ones_are_never_taken(cpus: list[Cpu]) -> None:
    free = {cpu.number for cpu in cpus if not cpu.isolated} - {0}
    chosen = choose(cpus)
    assert set(chosen) <= free
    assert bool(chosen) == bool(free)
    assert set(held(cpus)) in (set(), set(chosen))


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
        ("2-", "neither"),
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
