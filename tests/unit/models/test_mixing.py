"""The choice of bits: it fits, it keeps what matters, it is the same every time."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stoker.errors import InvalidRequest
from stoker.models.mixing import Harm, choose, groups, least_harmful

HARMS = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.builds(Harm, st.floats(0.0, 2.0), st.integers(-50, 1000)),
    min_size=1,
    max_size=10,
)


@given(HARMS, st.integers(0, 20_000), st.integers(0, 20_000))
def test_the_choice_fits_or_says_what_would(harms: dict[str, Harm], high: int, budget: int) -> None:
    least = high - sum(max(0, harm.saved_bytes) for harm in harms.values())
    if least > budget:
        with pytest.raises(InvalidRequest, match=f"it has {least}"):
            choose(harms, high, budget)
        return
    chosen = choose(harms, high, budget)
    size = high - sum(harms[name].saved_bytes for name in chosen)
    assert size <= budget
    assert chosen == choose(dict(reversed(harms.items())), high, budget)
    for name in chosen:  # nobody is sacrificed for nothing
        assert size + harms[name].saved_bytes > budget


@given(HARMS)
def test_a_budget_that_holds_everything_changes_nothing(harms: dict[str, Harm]) -> None:
    assert choose(harms, 5000, 5000) == ()


def test_the_least_harm_a_byte_goes_first() -> None:
    harms = {"dear": Harm(1.0, 100), "cheap": Harm(0.1, 100), "useless": Harm(0.0, 0)}
    assert choose(harms, 1000, 900) == ("cheap",)
    assert choose(harms, 1000, 850) == ("cheap", "dear")


@given(st.dictionaries(st.integers(0, 40), st.floats(0.0, 5.0), min_size=2), st.integers(1, 5))
def test_the_layers_left_out_are_those_that_hurt_least(harms: dict[int, float], count: int) -> None:
    assume(count < len(harms))
    gone = least_harmful(harms, count)
    assert len(gone) == count
    assert max(harms[n] for n in gone) <= min(harms[n] for n in harms if n not in gone)


@pytest.mark.parametrize("count", [0, 3, 9])
def test_a_model_keeps_a_layer(count: int) -> None:
    with pytest.raises(InvalidRequest):
        least_harmful({0: 1.0, 1: 1.0, 2: 1.0}, count)


@given(st.integers(1, 64))
def test_every_matrix_is_in_one_group_and_its_pattern_finds_it(layers: int) -> None:
    parts = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    names = ["token_embd.weight", "output.weight",
             *(f"blk.{n}.{part}.weight" for n in range(layers) for part in parts)]  # fmt: skip
    found = groups([(name, (64, 32)) for name in names])
    for name in names:
        assert sum(bool(re.search(group.pattern, name)) for group in found) == 1, name
    assert sum(group.values for group in found) == len(names) * 64 * 32


def test_norms_and_biases_are_in_no_group() -> None:
    tensors = [("blk.0.attn_norm.weight", (64,)), ("blk.0.attn_q.bias", (64,)),
               ("output_norm.weight", (64,)), ("blk.0.attn_q.weight", (64, 64))]  # fmt: skip
    (only,) = groups(tensors)
    assert only.name == "attention first"
    assert not re.search(only.pattern, "blk.10.attn_q.weight")
