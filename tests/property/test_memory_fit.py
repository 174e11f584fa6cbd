"""Plans never promise more than there is, more memory never gives less, levels never flap."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.model_shapes import DEEPSEEK, GEMMA3, MAMBA, MIB, QWEN_1_5B, SMOLLM2

from stoker.core import fit, memory_size, pressure
from stoker.core.fit import Plan, Refusal, Wishes
from stoker.core.memory_size import Shape
from stoker.core.pressure import Grow, Level, Look, Rules, Shrink, State
from stoker.events.memory import MemoryFacts, Pressure
from stoker.events.model_facts import ModelFacts
from stoker.units import Bytes, Seconds

FACTS = st.sampled_from([SMOLLM2, QWEN_1_5B, DEEPSEEK, GEMMA3, MAMBA]).flatmap(
    lambda facts: st.sampled_from(["", *facts.repack_bytes]).map(
        lambda cpu: replace(facts, repack_here=cpu)
    )
)
WISHES = st.builds(
    Wishes,
    model=st.just("m"),
    context_tokens=st.sampled_from([0, 256, 1000, 2048, 8192, 1 << 17]),
    slots=st.integers(1, 16),
    parked_slots=st.integers(0, 4),
    cached_prefixes=st.integers(0, 16),
    cache_tokens=st.sampled_from([0, 100, 4096, 1 << 15]),
    kv_type=st.sampled_from(["auto", "f16", "q8_0", "q4_0"]),
    batch_tokens=st.sampled_from([16, 128, 512, 2048]),
    flash_attention=st.sampled_from(["auto", "on", "off"]),
    mmap=st.booleans(),
    state_bytes=st.sampled_from([0, 10 * MIB, 256 * MIB]),
    least_context=st.sampled_from([256, 1024, 4096]),
    reserve_bytes=st.sampled_from([0, 64 * MIB]),
    mode=st.sampled_from(["auto", "strict"]),
)
ROOM = st.integers(0, 8 << 30)


def _plan(facts: ModelFacts, room: int, wishes: Wishes) -> Plan | Refusal:
    return fit.plan(facts, MemoryFacts(Bytes(16 << 30), Bytes(room)), wishes)


@given(facts=FACTS, room=ROOM, wishes=WISHES)
def test_plan_fits_and_keeps_what_was_named(facts: ModelFacts, room: int, wishes: Wishes) -> None:
    found = _plan(facts, room, wishes)
    if isinstance(found, Refusal):
        assert found.reason
        assert found.hint
        return
    assert found.parts.total <= room - wishes.reserve_bytes
    assert found.parts == memory_size.parts(facts, fit.shape(wishes, found))
    assert 1 <= found.slots <= wishes.slots
    assert found.context_tokens >= 256
    if wishes.kv_type != "auto":
        assert found.kv_type == wishes.kv_type
    if wishes.context_tokens:
        trained = facts.training_context
        assert found.context_tokens == max(256, min(wishes.context_tokens, trained))
    if wishes.mode == "strict":
        assert (found.slots, found.cache_tokens) == (wishes.slots, wishes.cache_tokens)
        assert found.said == ()


@given(facts=FACTS, room=ROOM, more=st.integers(0, 2 << 30), wishes=WISHES)
def test_more_memory_never_turns_a_plan_into_a_refusal(
    facts: ModelFacts, room: int, more: int, wishes: Wishes
) -> None:
    if isinstance(_plan(facts, room, wishes), Plan):
        assert isinstance(_plan(facts, room + more, wishes), Plan)


@given(facts=FACTS, wishes=WISHES)
def test_shrinking_always_ends(facts: ModelFacts, wishes: Wishes) -> None:
    found = _plan(facts, 1 << 50, wishes)
    assert isinstance(found, Plan)
    for _ in range(40):
        after = fit.smaller(facts, wishes, found)
        if after is None:
            return
        assert after.cells < found.cells
        assert after.parts.kv <= found.parts.kv
        assert after.slots >= 1
        found = after
    raise AssertionError("it never ends")


@given(facts=FACTS, cells=st.integers(1, 1 << 18), sequences=st.integers(1, 80))
def test_bytes_grow_with_cells(facts: ModelFacts, cells: int, sequences: int) -> None:
    less, more = (Shape(count, sequences) for count in (cells, cells + 256))
    assert 0 <= memory_size.kv_bytes(facts, less) <= memory_size.kv_bytes(facts, more)
    assert 0 < memory_size.compute_bytes(facts, less) <= memory_size.compute_bytes(facts, more)


RULES = Rules(reserve_bytes=64 * MIB)
LOOKS = st.lists(
    st.tuples(
        st.floats(0.1, 20.0),  # seconds since the last look
        st.one_of(st.none(), st.tuples(st.floats(0, 100), st.floats(0, 100))),
        st.integers(0, 256 * MIB),
        st.booleans(),
        st.booleans(),
    ),
    max_size=120,
)


def _walk(looks: list[tuple[float, tuple[float, float] | None, int, bool, bool]]) -> (
    list[tuple[float, State, tuple[pressure.Action, ...], Look]]
):  # fmt: skip
    state, now, out = State(), 0.0, []
    for step_s, seen, free, idle, shrunk in looks:
        now += step_s
        look = Look(Seconds(now), Pressure(*seen) if seen else None, free, idle, shrunk)
        state, actions = pressure.step(state, look, RULES)
        out.append((now, state, actions, look))
    return out


@given(looks=LOOKS)
def test_levels_do_not_flap(
    looks: list[tuple[float, tuple[float, float] | None, int, bool, bool]],
) -> None:
    """A level falls only after a calm of ``calm_after_s`` with no look against it."""
    walked = _walk(looks)
    level, last_change = Level.CALM, float("-inf")
    for now, state, _, look in walked:
        if state.level < level:
            assert state.level == level - 1
            assert now - last_change >= RULES.calm_after_s
            assert pressure.severity(look, RULES) < level
        if state.level > level:
            assert pressure.severity(look, RULES) >= state.level
        if state.level is not level:
            level, last_change = state.level, now


@given(looks=LOOKS)
def test_contexts_are_made_anew_seldom_and_only_when_idle(
    looks: list[tuple[float, tuple[float, float] | None, int, bool, bool]],
) -> None:
    last = float("-inf")
    for now, state, actions, look in _walk(looks):
        for action in actions:
            if isinstance(action, Shrink | Grow):
                assert look.idle
                assert now - last >= RULES.settle_s
                last = now
            if isinstance(action, Grow):
                assert state.level is Level.CALM
                assert look.shrunk


def test_growing_that_brings_the_shortage_back_waits_longer_each_time() -> None:
    """A load that fits only while shrunk: full = short, shrunk = calm. Nobody may thrash."""
    state, now, shrunk = State(), 0.0, False
    grown: list[float] = []
    while now < 24 * 3600:
        now += 10.0
        seen = Pressure(0.0, 0.0) if shrunk else Pressure(50.0, 0.0)
        look = Look(Seconds(now), seen, 1 << 30, idle=True, shrunk=shrunk)
        state, actions = pressure.step(state, look, RULES)
        for action in actions:
            if isinstance(action, Shrink):
                shrunk = True
            if isinstance(action, Grow):
                shrunk = False
                grown.append(now)
    gaps = [after - before for before, after in pairwise(grown)]
    assert 5 < len(grown) < 20
    assert all(later > 1.5 * earlier or later > 4 * 3600 for earlier, later in pairwise(gaps))
