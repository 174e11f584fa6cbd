"""What gives way, in which order, what never does, and what a refusal says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.model_shapes import DEEPSEEK, GEMMA3, GIB, MAMBA, MIB, QWEN_1_5B, SMOLLM2

from stoker.core import fit
from stoker.core.fit import Plan, Refusal, Wishes
from stoker.events.memory import MemoryFacts
from stoker.events.model_facts import ModelFacts
from stoker.units import Bytes

WISHES = Wishes(model="smol", cache_tokens=4096, cached_prefixes=8)


def memory(mib: float) -> MemoryFacts:
    return MemoryFacts(Bytes(16 * GIB), Bytes(int(mib * MIB)))


def planned(mib: float, wishes: Wishes = WISHES, facts: ModelFacts = SMOLLM2) -> Plan:
    found = fit.plan(facts, memory(mib), wishes)
    assert isinstance(found, Plan), found
    assert found.parts.total <= mib * MIB
    return found


def refused(mib: float, wishes: Wishes = WISHES, facts: ModelFacts = SMOLLM2) -> Refusal:
    found = fit.plan(facts, memory(mib), wishes)
    assert isinstance(found, Refusal), found
    return found


def test_with_room_everything_is_as_wished() -> None:
    found = planned(4096)
    assert (found.slots, found.parked_slots, found.context_tokens) == (4, 1, 4096)
    assert (found.cache_tokens, found.kv_type, found.said) == (4096, "f16", ())


def test_adapters_and_what_is_kept_for_others_are_not_the_models() -> None:
    needed = planned(4096).parts.total / MIB
    wishes = replace(WISHES, reserve_bytes=100 * MIB, adapter_bytes=50 * MIB, mode="strict")
    assert isinstance(fit.plan(SMOLLM2, memory(needed + 151), wishes), Plan)
    assert "50 MiB for its adapters" in refused(needed + 149, wishes).reason


def test_the_copy_of_one_conversation_that_is_saved_is_counted() -> None:
    bare = planned(4096).parts
    saves = planned(4096, replace(WISHES, state_bytes=256 * MIB)).parts
    assert saves.saving == 90 * MIB  # 4096 tokens of 22.5 KiB
    assert saves.total == saves.saving + bare.total
    bounded = planned(4096, replace(WISHES, state_bytes=64 * MIB)).parts
    assert bounded.saving == 64 * MIB  # a larger one is not saved
    found = planned(bare.total / MIB + 60, replace(WISHES, state_bytes=256 * MIB))
    assert found.cache_tokens < 4096


def test_order_of_what_gives_way() -> None:
    """Less and less memory: the cache first, slots last."""
    needed = planned(4096).parts.total / MIB
    seen: list[tuple[str, ...]] = []
    for part in range(100, 20, -1):
        found = fit.plan(SMOLLM2, memory(needed * part / 100), WISHES)
        if isinstance(found, Refusal):
            break
        names = tuple(
            name
            for name in ("cache_tokens", "parked_slots", "context_tokens", "kv_type", "slots")
            if getattr(found, name) != getattr(planned(4096), name)
        )
        if not seen or seen[-1] != names:
            seen.append(names)
        assert bool(found.said) == bool(names)
    given = ("cache_tokens", "parked_slots", "context_tokens", "kv_type", "slots")
    first = [next(n for n, names in enumerate(seen) if name in names) for name in given]
    assert first == sorted(first)
    assert seen[0] == ()


def test_context_is_the_longest_that_fits_and_not_below_the_least() -> None:
    found = planned(400)
    assert found.context_tokens % 256 == 0
    longer = replace(WISHES, context_tokens=found.context_tokens + 256, kv_type=found.kv_type,
                     slots=found.slots, parked_slots=0, cache_tokens=0)  # fmt: skip
    assert isinstance(fit.plan(SMOLLM2, memory(400), replace(longer, mode="strict")), Refusal)
    for mib in range(150, 700, 10):
        any_plan = fit.plan(SMOLLM2, memory(mib), WISHES)
        assert isinstance(any_plan, Refusal) or any_plan.context_tokens >= 1024


def test_explicit_context_and_type_never_change() -> None:
    wishes = replace(WISHES, context_tokens=8192, kv_type="f16")
    for mib in range(200, 1200, 20):
        found = fit.plan(SMOLLM2, memory(mib), wishes)
        if isinstance(found, Plan):
            assert (found.context_tokens, found.kv_type) == (8192, "f16")
    assert planned(420, wishes).slots < 4


def test_strict_takes_all_or_nothing() -> None:
    strict = replace(WISHES, mode="strict")
    needed = planned(4096).parts.total
    assert fit.plan(SMOLLM2, memory(needed / MIB), strict) == planned(4096)
    found = fit.plan(SMOLLM2, memory(needed / MIB - 1), strict)
    assert isinstance(found, Refusal)
    assert 'fit = "auto"' in found.hint


def test_off_loads_without_a_look() -> None:
    found = fit.plan(SMOLLM2, memory(1), replace(WISHES, mode="off"))
    assert isinstance(found, Plan)
    assert found.said == ()


def test_refusal_says_needed_free_and_what_would_fit() -> None:
    wishes = Wishes(model="qwen", context_tokens=16384, kv_type="f16")
    found = refused(1300, wishes, QWEN_1_5B)
    assert found.reason.startswith("cannot load model qwen: it needs ")
    assert "1.3 GiB are free (MemAvailable)" in found.reason
    assert "with a context of" in found.hint
    assert "would fit" in found.hint
    assert found.needed_bytes > found.available_bytes == 1300 * MIB


def test_what_a_refusal_offers_does_fit() -> None:
    wishes = Wishes(model="qwen", context_tokens=16384, kv_type="f16")
    hint = refused(1300, wishes, QWEN_1_5B).hint.split()
    offered = Wishes(
        model="qwen", slots=int(hint[0]), parked_slots=0, context_tokens=int(hint[6]),
        kv_type=hint[8], mode="strict",
    )  # fmt: skip
    planned(1300, offered, QWEN_1_5B)


def test_weights_that_do_not_fit_are_named() -> None:
    assert "weights alone take 985 MiB" in refused(500, Wishes(model="q"), QWEN_1_5B).hint


def test_reserve_is_kept_and_said() -> None:
    needed = planned(4096, Wishes(model="m")).parts.total / MIB
    wishes = Wishes(model="m", reserve_bytes=100 * MIB, mode="strict")
    assert "100 MiB of them kept for others" in refused(needed + 99, wishes).reason
    planned(needed + 101, wishes)


def test_training_context_bounds_the_wish() -> None:
    assert planned(4096, replace(WISHES, context_tokens=1 << 20)).context_tokens == 8192


def test_values_stay_f16_without_flash_attention() -> None:
    for mib in range(250, 900, 25):
        found = fit.plan(SMOLLM2, memory(mib), replace(WISHES, flash_attention="off"))
        assert isinstance(found, Refusal) or found.kv_type == "f16"


def test_shrinking_ends_and_halves() -> None:
    found: Plan | None = planned(4096)
    steps = []
    while found is not None:
        steps.append(found)
        found = fit.smaller(SMOLLM2, WISHES, found)
    cells = [step.cells for step in steps]
    assert cells == sorted(set(cells), reverse=True)
    assert steps[-1].context_tokens == 1024
    assert steps[-1].slots == 1
    assert len(steps) < 10
    assert all(step.kv_type == "f16" for step in steps)


@pytest.mark.parametrize("context", [512, 8192])
def test_shrinking_keeps_an_explicit_context(context: int) -> None:
    wishes = replace(WISHES, context_tokens=context)
    found: Plan | None = planned(4096, wishes)
    while found is not None:
        assert found.context_tokens == context
        found = fit.smaller(SMOLLM2, wishes, found)


@given(
    st.sampled_from([SMOLLM2, QWEN_1_5B, DEEPSEEK, GEMMA3, MAMBA]),
    st.integers(0, 3000), st.integers(0, 200), st.integers(0, 200), st.booleans(),
)  # fmt: skip
def test_what_is_refused_by_its_size_alone_no_plan_would_take(
    facts: ModelFacts, mib: int, adapter_mib: int, reserve_mib: int, mmap: bool
) -> None:
    beside, reserve = adapter_mib * MIB, reserve_mib * MIB
    short = fit.shortage(
        facts.file_bytes, memory(mib), beside_bytes=beside, reserve_bytes=reserve, held_bytes=0
    )
    wishes = replace(WISHES, adapter_bytes=beside, reserve_bytes=reserve, mmap=mmap)
    if short is not None:
        assert isinstance(fit.plan(facts, memory(mib), wishes), Refusal)


def test_a_size_that_fits_in_place_of_the_model_in_use_is_no_shortage() -> None:
    def short(held_mib: int, file_mib: int = 1000) -> fit.Shortage | None:
        return fit.shortage(
            file_mib * MIB, memory(800), beside_bytes=10 * MIB, reserve_bytes=100 * MIB,
            held_bytes=held_mib * MIB,
        )  # fmt: skip

    assert short(334) is None
    found = short(333)
    assert found == fit.Shortage(1034 * MIB, 1033 * MIB)
    hopeless = short(334, 17 * 1024)
    assert hopeless is not None
    assert hopeless.hopeless
