"""Builds the sampler chain of one job; checks every value before C sees it.

``top_k`` runs first: sorting 40 candidates instead of the whole vocabulary makes the
rest ten times cheaper. Penalties come before it in meaning: see ``_members``. No sampler
may be NULL: a chain with one kills the process.
"""

from __future__ import annotations

import math
from typing import Any

from stoker.errors import EngineFailed, InvalidRequest
from stoker.events.prompt import SAMPLING_RANGES, Sampling


def check(sampling: Sampling) -> None:
    """Raises InvalidRequest naming the first value out of range."""
    for name, (low, high) in SAMPLING_RANGES.items():
        value = getattr(sampling, name)
        if not math.isfinite(value) or not low <= value <= high:
            raise InvalidRequest(
                f"cannot generate: sampling.{name} {value} is outside {low}..{high}",
                details={"path": f"sampling.{name}"},
            )


def build(c: Any, sampling: Sampling, *, seed: int, vocabulary: int) -> Any:
    """A chain to be given to ``llama_sampler_free``; ``c`` is the binding."""
    chain = c.llama_sampler_chain_init(c.llama_sampler_chain_default_params())
    if not chain:
        raise EngineFailed("cannot generate: no sampler chain")
    try:
        for sampler in _members(c, sampling, seed, vocabulary):
            if not sampler:
                raise EngineFailed("cannot generate: a sampler could not be made")
            c.llama_sampler_chain_add(chain, sampler)
    except BaseException:
        c.llama_sampler_free(chain)
        raise
    return chain


def penalised(sampling: Sampling) -> bool:
    """The chain remembers what was drawn: then it must not draw what is not used."""
    values = sampling.repeat_penalty, sampling.frequency_penalty, sampling.presence_penalty
    return sampling.repeat_last_n > 0 and values != (1.0, 0.0, 0.0)


def _members(c: Any, sampling: Sampling, seed: int, vocabulary: int) -> Any:
    greedy = sampling.temperature <= 0.0
    repeats, often, seen = (
        sampling.repeat_penalty, sampling.frequency_penalty, sampling.presence_penalty,
    )  # fmt: skip
    wanted = 1 if greedy else sampling.top_k  # 0 = the whole vocabulary
    if penalised(sampling):
        # Penalties move at most repeat_last_n tokens. Where they only make these less likely,
        # the best of all tokens afterwards are among the best wanted + repeat_last_n before,
        # so that few candidates stand for the vocabulary exactly.
        lowering = repeats >= 1.0 and often >= 0.0 and seen >= 0.0
        if lowering and wanted:
            yield c.llama_sampler_init_top_k(min(wanted + sampling.repeat_last_n, vocabulary))
        yield c.llama_sampler_init_penalties(
            vocabulary, sampling.repeat_last_n, repeats, often, seen
        )
    if wanted and not greedy:
        yield c.llama_sampler_init_top_k(min(wanted, vocabulary))
    if greedy:
        yield c.llama_sampler_init_greedy()
        return
    if sampling.top_p < 1.0:
        yield c.llama_sampler_init_top_p(sampling.top_p, 1)
    if sampling.min_p > 0.0:
        yield c.llama_sampler_init_min_p(sampling.min_p, 1)
    yield c.llama_sampler_init_temp(sampling.temperature)
    yield c.llama_sampler_init_dist(seed)
