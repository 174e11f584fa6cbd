"""One shared slot: bumpless below, reported and not fought above, released at the top."""

from __future__ import annotations

from stoker.core.cap_records import after_release, before_write, ours
from stoker.core.caps import CapState, SetCap, highest_index, observe, owner_index, refuse, want
from stoker.core.opp import PowerTable
from stoker.events.thermal import CapRecord
from stoker.units import KiloHertz, Seconds, Watts

K = KiloHertz
STEPS = tuple(K(mhz * 1000) for mhz in (600, 800, 1000, 1200))
TABLE = PowerTable("policy0", STEPS, tuple(Watts(w) for w in (1.0, 1.5, 2.2, 3.0)))


def seen(state: CapState, khz: int | None, now: float = 0.0, hot: bool = False) -> CapState:
    return observe(state, None if khz is None else K(khz), STEPS[-1], Seconds(now), hot)


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


def test_a_vanished_policy_forgets_what_was_written() -> None:
    assert seen(capped(), None) == CapState()


def test_the_owners_limit_bounds_the_full_power() -> None:
    assert owner_index(seen(CapState(), 900_000), TABLE) == 2


def test_the_journal_knows_the_old_and_the_new_value_before_the_write() -> None:
    first = before_write((), SetCap("policy0", K(800_000), K(1_200_000)), "b")
    second = before_write(first, SetCap("policy0", K(600_000), K(1_200_000)), "b")
    third = before_write(second, SetCap("policy0", K(1_000_000), K(1_200_000)), "b")
    assert ours(second, "policy0", "b") == (800_000, 600_000)
    assert ours(third, "policy0", "b") == (600_000, 1_000_000)
    assert ours(third, "policy0", "another boot") == ()
    assert after_release(third, "policy0") == ()


def test_journal_lines_of_other_policies_stay() -> None:
    other = CapRecord("policy4", K(2), K(1), "b")
    lines = before_write((other,), SetCap("policy0", K(800_000), K(1_200_000)), "b")
    assert other in lines
    assert after_release(lines, "policy0") == (other,)
