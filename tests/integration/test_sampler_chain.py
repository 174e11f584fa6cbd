"""The sampler chain against the real library, without a model: what comes first in meaning."""

from __future__ import annotations

import ctypes
import random
from typing import Any

import pytest

from stoker.errors import InvalidRequest
from stoker.events.prompt import Sampling
from stoker.runner import samplers
from stoker.runner.library import Library

SIZE = 3000
pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def c() -> Any:
    return Library().c


def draw(c: Any, chain: Any, logits: list[float]) -> int:
    entries = (c.llama_token_data * SIZE)(
        *(c.llama_token_data(token, logit, 0.0) for token, logit in enumerate(logits))
    )
    array = c.llama_token_data_array(entries, SIZE, -1, False)
    c.llama_sampler_apply(chain, ctypes.byref(array))
    return int(array.data[array.selected].id)


def plain(c: Any, sampling: Sampling, seed: int) -> Any:
    """Penalties over the whole vocabulary, then the rest: slow, and right by its looks."""
    chain = c.llama_sampler_chain_init(c.llama_sampler_chain_default_params())
    members = [
        c.llama_sampler_init_penalties(
            SIZE, sampling.repeat_last_n, sampling.repeat_penalty,
            sampling.frequency_penalty, sampling.presence_penalty,
        )
    ]  # fmt: skip
    if sampling.temperature <= 0:
        members.append(c.llama_sampler_init_greedy())
    else:
        members += [
            c.llama_sampler_init_top_k(sampling.top_k),
            c.llama_sampler_init_top_p(sampling.top_p, 1),
            c.llama_sampler_init_min_p(sampling.min_p, 1),
            c.llama_sampler_init_temp(sampling.temperature),
            c.llama_sampler_init_dist(seed),
        ]
    for member in members:
        c.llama_sampler_chain_add(chain, member)
    return chain


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(
    "penalties",
    [
        {"repeat_penalty": 1.5},
        {"frequency_penalty": 1.2, "presence_penalty": 0.7},
        {"repeat_penalty": 0.7},
        {"frequency_penalty": -1.0},
        {"repeat_penalty": 1.3, "presence_penalty": -0.5},
    ],
)
def test_few_candidates_stand_for_the_whole_vocabulary(
    c: Any, temperature: float, penalties: dict[str, float]
) -> None:
    sampling = Sampling(temperature=temperature, top_k=5, repeat_last_n=8, **penalties)  # type: ignore[arg-type]
    chains = samplers.build(c, sampling, seed=3, vocabulary=SIZE), plain(c, sampling, 3)
    luck = random.Random(7)
    base = [luck.gauss(0, 2) for _ in range(SIZE)]
    try:
        for _ in range(120):  # the same few tokens stay likely, so penalties decide
            logits = [value + luck.gauss(0, 0.05) for value in base]
            ours, theirs = (draw(c, chain, logits) for chain in chains)
            assert ours == theirs
            for chain in chains:
                c.llama_sampler_accept(chain, ours)
    finally:
        for chain in chains:
            c.llama_sampler_free(chain)


def test_a_value_out_of_range_never_reaches_the_library() -> None:
    with pytest.raises(InvalidRequest):
        samplers.check(Sampling(frequency_penalty=float("nan")))
