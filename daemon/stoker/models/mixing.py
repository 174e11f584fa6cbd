"""Which tensors get few bits and which get more: groups, and a choice by measured harm. Pure.

Each group is measured alone: how far the model drifts (KL divergence in nats a token) when only
this group has the low type, and how many bytes that saves. Then the cheapest harm a byte goes
first, until the size fits. Harms are taken to add up, which the final measurement checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from stoker.errors import InvalidRequest

_BLOCK: Final = re.compile(r"blk\.(\d+)\.([a-z0-9_]+)\.weight")
KINDS: Final = {
    "attention": (
        "attn_q", "attn_k", "attn_qkv", "attn_q_a", "attn_q_b", "attn_kv_a_mqa", "attn_kv_b",
    ),
    "attn_v": ("attn_v",),
    "attn_output": ("attn_output",),
    "ffn_in": (
        "ffn_gate", "ffn_up", "ffn_gate_exps", "ffn_up_exps", "ffn_gate_shexp", "ffn_up_shexp",
    ),
    "ffn_down": ("ffn_down", "ffn_down_exps", "ffn_down_shexp"),
}  # fmt: skip
EDGES: Final = {"embedding": r"token_embd\.weight", "output": r"^output\.weight"}
THIRDS: Final = ("first", "middle", "last")


@dataclass(frozen=True, slots=True)
class Group:
    """``pattern``: llama.cpp's regular expression for its tensors; ``values``: weights in it."""

    name: str
    pattern: str
    values: int


@dataclass(frozen=True, slots=True)
class Harm:
    """What giving a group the low type does."""

    kl: float
    saved_bytes: int


def groups(tensors: Iterable[tuple[str, Sequence[int]]]) -> tuple[Group, ...]:
    """Of a file's matrices: kinds by thirds of the layers, and both ends. In a fixed order."""
    layers: dict[str, dict[int, int]] = {}
    ends: dict[str, int] = {}
    for name, extents in tensors:
        values = 1
        for extent in extents:
            values *= extent
        found = _BLOCK.fullmatch(name)
        if found is None:
            for edge, pattern in EDGES.items():
                if re.fullmatch(pattern, name):
                    ends[edge] = values
        elif sum(extent > 1 for extent in extents) >= 2:
            kind = next((kind for kind, parts in KINDS.items() if found[2] in parts), "")
            if kind:
                by_layer = layers.setdefault(kind, {})
                by_layer[int(found[1])] = by_layer.get(int(found[1]), 0) + values
    out = [Group(edge, EDGES[edge], values) for edge, values in sorted(ends.items())]
    for kind in (kind for kind in KINDS if kind in layers):
        out += _by_thirds(kind, layers[kind])
    return tuple(out)


def _by_thirds(kind: str, by_layer: Mapping[int, int]) -> list[Group]:
    numbers = sorted(by_layer)
    size = -(-len(numbers) // len(THIRDS))
    out = []
    for part, name in enumerate(THIRDS):
        some = numbers[part * size : (part + 1) * size]
        if some:
            which = "|".join(map(str, some))
            parts = "|".join(KINDS[kind])
            pattern = rf"blk\.({which})\.({parts})\.weight"
            out.append(Group(f"{kind} {name}", pattern, sum(by_layer[n] for n in some)))
    return out


def choose(harms: Mapping[str, Harm], high_bytes: int, budget_bytes: int) -> tuple[str, ...]:
    """Names of the groups that get the low type, so that the file fits. ``high_bytes``: its size
    when none does. Raises InvalidRequest with the least size when nothing fits.
    """
    order = sorted(
        (name for name, harm in harms.items() if harm.saved_bytes > 0),
        key=lambda name: (harms[name].kl / harms[name].saved_bytes, name),
    )
    chosen: list[str] = []
    size = high_bytes
    for name in order:
        if size <= budget_bytes:
            break
        chosen.append(name)
        size -= harms[name].saved_bytes
    if size > budget_bytes:
        raise InvalidRequest(
            f"cannot make the model fit {budget_bytes} bytes: with the low type everywhere it has "
            f"{size}",
            hint="choose a smaller low type, or prune layers first",
        )
    return tuple(sorted(_without_needless(chosen, harms, size, budget_bytes)))


def _without_needless(
    chosen: Sequence[str], harms: Mapping[str, Harm], size: int, budget_bytes: int
) -> list[str]:
    """The last choice often saves more than was missing: whoever is not needed stays high, the
    most harmful first."""
    left = list(chosen)
    for name in sorted(chosen, key=lambda name: (-harms[name].kl, name)):
        if size + harms[name].saved_bytes <= budget_bytes:
            left.remove(name)
            size += harms[name].saved_bytes
    return left


def least_harmful(harms: Mapping[int, float], count: int) -> tuple[int, ...]:
    """Layers to leave out: those whose loss alone hurt least."""
    if not 0 < count < len(harms):
        raise InvalidRequest(f"cannot leave out {count} of {len(harms)} layers")
    return tuple(sorted(sorted(harms, key=lambda layer: (harms[layer], layer))[:count]))
