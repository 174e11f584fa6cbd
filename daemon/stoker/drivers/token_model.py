"""Tokens a second of a simulated board: prefill is bound by compute, decode by memory too.

    compute   sum over busy CPUs of MHz · weight, as a part of all CPUs at the top step
    prefill   prefill_tok_s · compute
    decode    (rc^-4 + rm^-4)^(-1/4);  rc = decode_tok_s · rho · compute;
              rm = decode_tok_s · (MHz / top MHz)^beta · min(1, threads / saturating)
    activity  of a busy CPU: 1 in prefill; stall + (1 − stall) · decode / rc in decode

Assumed but for the anchors that docs/thermal.md names; its tables tell the sensitivity. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from stoker.drivers.plants import PlantSpec

Phase = Literal["prefill", "decode"]
SOFTNESS: Final = 4.0


@dataclass(frozen=True, slots=True)
class TokenModel:
    """``rho``: how much faster decode would be than memory lets it, all CPUs at the top step.
    ``beta``: how the clock limits a core's part of the bandwidth. ``stall``: power of a CPU
    that waits for memory, as a part of a busy one's. ``saturating``: threads that fill memory.
    """

    prefill_tok_s: float
    decode_tok_s: float
    rho: float
    beta: float = 0.2
    stall: float = 0.8
    saturating: float = 2.0


# Pi 5, llama.cpp issue 26484: 25.8 tokens/s of a 0.5B model as Q4_K_M; GB/s are the same within
# 4 % from Q2_K to Q8_0 (so rho is about 2), and decoding burns what a stress test does (so stall
# is high). The others are scaled by memory (about 4, 10, 17, 50 GB/s) and by CPUs.
MODELS: Final[dict[str, TokenModel]] = {
    "raspberrypi-4": TokenModel(28.0, 9.0, 1.2),
    "raspberrypi-5": TokenModel(105.0, 25.8, 2.0),
    "rk3588": TokenModel(150.0, 38.0, 1.7),
    "x86-generic": TokenModel(900.0, 110.0, 3.0),
}


def placement(spec: PlantSpec, threads: int) -> dict[str, int]:
    """Busy CPUs per policy: the fastest kind first, as ``core.cpu_choice`` does."""
    busy, left = {}, threads
    for cluster in sorted(spec.clusters, key=lambda c: -c.opps[-1][0] * c.weight):
        busy[cluster.policy] = min(left, len(cluster.cpus))
        left -= busy[cluster.policy]
    return busy


def tokens_per_s(
    spec: PlantSpec,
    phase: Phase,
    threads: int,
    mhz_by_policy: Mapping[str, float],
    model: TokenModel | None = None,
) -> float:
    """Of one stream in decode, of one prompt in prefill. ``threads`` at least 1."""
    return speed(model or MODELS[spec.board], spec, phase, threads, mhz_by_policy)[0]


def speed(
    model: TokenModel,
    spec: PlantSpec,
    phase: Phase,
    threads: int,
    mhz_by_policy: Mapping[str, float],
) -> tuple[float, float]:
    """Tokens per second, and the activity (0..1) of each busy CPU."""
    busy = placement(spec, threads)
    compute, full, clock = 0.0, 0.0, 0.0
    for cluster in spec.clusters:
        mhz, top_mhz = mhz_by_policy[cluster.policy], cluster.opps[-1][0]
        compute += busy[cluster.policy] * cluster.weight * mhz
        full += len(cluster.cpus) * cluster.weight * top_mhz
        if busy[cluster.policy]:
            clock = max(clock, mhz / top_mhz)
    if phase == "prefill":
        return model.prefill_tok_s * compute / full, 1.0
    by_compute = model.decode_tok_s * model.rho * compute / full
    by_memory = model.decode_tok_s * clock**model.beta * min(1.0, threads / model.saturating)
    rate: float = (by_compute**-SOFTNESS + by_memory**-SOFTNESS) ** (-1 / SOFTNESS)
    return rate, model.stall + (1 - model.stall) * rate / by_compute
