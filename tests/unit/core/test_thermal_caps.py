"""One shared slot: bumpless below, reported and not fought above, released at the top."""

from __future__ import annotations

from stoker.core.cap_records import after_release, before_write, held, last_known, of_boot
from stoker.core.caps import (
    CapState,
    Held,
    SetCap,
    found,
    highest_index,
    observe,
    owner_index,
    refuse,
    want,
)
from stoker.core.opp import PowerTable
from stoker.events.thermal import CapRecord
from stoker.units import KiloHertz, Seconds, Watts

K = KiloHertz
STEPS = tuple(K(mhz * 1000) for mhz in (600, 800, 1000, 1200))
TABLE = PowerTable("policy0", STEPS, tuple(Watts(w) for w in (1.0, 1.5, 2.2, 3.0)))


def seen(
    state: CapState,
    khz: int | None,
    now: float = 0.0,
    hot: bool = False,
    ours: Held | None = None,
) -> CapState:
    return observe(state, None if khz is None else K(khz), STEPS[-1], Seconds(now), hot, ours)


def wanted(
    state: CapState, index: int, khz: int, now: float = 0.0, hot: bool = False
) -> tuple[CapState, SetCap | None]:
    return want(state, TABLE, index, K(khz), Seconds(now), hot)


def capped(index: int = 1) -> CapState:
    state, _ = wanted(seen(CapState(), 1_200_000), index, 1_200_000)
    return state


def test_nothing_is_written_while_nothing_limits() -> None:
    assert wanted(seen(CapState(), 1_200_000), 3, 1_200_000)[1] is None


def test_a_cap_is_written_once_and_not_again() -> None:
    state, action = wanted(seen(CapState(), 1_200_000), 1, 1_200_000)
    assert action == SetCap("policy0", K(800_000), K(1_200_000))
    assert wanted(seen(state, 800_000), 1, 800_000)[1] is None


def test_at_the_top_the_original_goes_back_and_nothing_is_ours() -> None:
    state, action = wanted(capped(), 3, 800_000)
    assert action == SetCap("policy0", K(1_200_000), K(1_200_000), release=True)
    assert state.ours_khz is None


def test_the_owners_own_limit_is_never_raised() -> None:
    state = seen(CapState(), 1_000_000)
    state, _ = wanted(state, 0, 1_000_000)
    _, action = wanted(state, 3, 600_000)
    assert action is not None
    assert action.cap_khz == 1_000_000


def test_a_low_limit_seen_while_hot_is_taken_for_the_kernels_not_the_owners() -> None:
    assert seen(CapState(), 600_000, hot=True).original_khz == 1_200_000
    assert seen(seen(CapState(), 1_200_000), 600_000, hot=True).original_khz == 1_200_000
    assert seen(seen(CapState(), 1_200_000), 1_000_000).original_khz == 1_000_000


def test_a_lower_readback_is_not_foreign_and_lets_ours_rise_one_step_above_it() -> None:
    state = seen(capped(2), 600_000)
    assert state.foreign_khz is None
    assert highest_index(state, TABLE, K(600_000)) == 1
    assert wanted(state, 2, 600_000)[1] is None  # no write: ours still stands


def test_a_higher_readback_is_foreign_reported_and_answered_after_five_seconds() -> None:
    state = seen(capped(), 1_200_000, now=1.0)
    assert state.foreign_khz == 1_200_000
    assert wanted(state, 1, 1_200_000, now=4.9)[1] is None
    state, action = wanted(state, 1, 1_200_000, now=5.0)
    assert action is not None
    state = seen(state, 800_000, now=70.0)
    assert state.foreign_khz is None


def test_a_foreign_writer_is_answered_sooner_while_hot() -> None:
    assert wanted(seen(capped(), 1_200_000, 1.0), 1, 1_200_000, 1.0, hot=True)[1] is not None


def test_a_refused_write_is_not_tried_again_for_half_a_minute() -> None:
    state = refuse(capped(), Seconds(1.0))
    assert wanted(state, 1, 1_200_000, 30.0)[1] is None
    assert wanted(state, 1, 1_200_000, 31.5)[1] is not None


def test_a_refused_write_leaves_the_one_before() -> None:
    state, action = wanted(capped(1), 0, 800_000)
    assert action is not None
    state = refuse(state, Seconds(0.0), "EBUSY")
    assert (state.ours_khz, state.original_khz) == (800_000, 1_200_000)
    state, action = wanted(state, 3, 800_000, 31.0)
    assert action is not None
    assert action.release
    assert refuse(state, Seconds(31.0)).ours_khz == 800_000


def test_a_readback_that_fails_forgets_nothing() -> None:
    state = seen(capped(), None)
    assert (state.ours_khz, state.original_khz) == (800_000, 1_200_000)
    assert seen(state, 800_000) == capped()


def test_a_policy_that_comes_back_without_our_cap_is_nobodys_deed() -> None:
    state = seen(seen(capped(), None), 1_200_000)
    assert (state.ours_khz, state.foreign_khz) == (None, None)
    assert wanted(state, 1, 1_200_000)[1] is not None


def test_what_the_journal_calls_ours_is_not_taken_for_the_owners() -> None:
    ours = {K(800_000): K(1_200_000)}
    state = seen(CapState(), 800_000, ours=ours)
    assert (state.ours_khz, state.original_khz) == (800_000, 1_200_000)
    late = seen(wanted(capped(1), 0, 800_000)[0], 800_000, ours={**ours, K(600_000): K(1_200_000)})
    assert (late.foreign_khz, late.original_khz) == (None, 1_200_000)


def test_a_lower_value_found_in_the_slot_is_the_owners_and_reported() -> None:
    state, _ = wanted(capped(0), 2, 600_000)
    state = found(state, K(700_000), Seconds(1.0), foreign=True)
    assert (state.ours_khz, state.original_khz) == (None, 700_000)
    assert (state.foreign_khz, state.foreign_below) == (700_000, False)
    state = found(wanted(capped(1), 2, 700_000)[0], K(700_000), Seconds(1.0), foreign=True)
    assert state.foreign_below
    assert seen(state, 700_000, 70.0).foreign_khz is None


def test_the_owners_limit_bounds_the_full_power() -> None:
    assert owner_index(seen(CapState(), 900_000), TABLE) == 2


def line(ours_khz: int, original_khz: int = 1_200_000, policy: str = "policy0") -> CapRecord:
    return CapRecord(policy, K(original_khz), K(ours_khz), "b")


def test_the_journal_knows_the_old_and_the_new_value_before_the_write() -> None:
    first = before_write((), line(800_000))
    second = before_write(first, line(600_000), K(800_000))
    third = before_write(second, line(1_000_000), K(600_000))
    assert list(held(second)["policy0"]) == [800_000, 600_000]
    assert list(held(third)["policy0"]) == [600_000, 1_000_000]
    assert of_boot(third, "another boot") == ()
    assert after_release(third, "policy0") == ()


def test_after_a_refused_write_every_older_value_stays_in_the_journal() -> None:
    second = before_write(before_write((), line(800_000)), line(600_000), K(800_000))
    third = before_write(second, line(1_000_000))
    assert list(held(third)["policy0"]) == [800_000, 600_000, 1_000_000]


def test_a_probe_takes_nothing_from_the_lines_before_it() -> None:
    probe = line(1_200_000, 600_000)
    lines = before_write((line(800_000),), probe, K(800_000))
    assert held(lines)["policy0"] == {800_000: 1_200_000, 1_200_000: 600_000}
    assert last_known(lines, "policy0") == line(800_000)
    after = before_write(lines, line(1_000_000), K(1_200_000))
    assert held(after)["policy0"] == {1_200_000: 1_200_000, 1_000_000: 1_200_000}


def test_journal_lines_of_other_policies_stay() -> None:
    other = line(1, 2, "policy4")
    lines = before_write((other,), line(800_000))
    assert other in lines
    assert after_release(lines, "policy0") == (other,)
