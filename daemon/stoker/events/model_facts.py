"""What a model file says of its own shape: all that a memory plan needs, nothing loaded.

The runner reads it from the GGUF header (``runner.facts``), stokerd plans with it
(``core.fit``). Zero means that the file does not say.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stoker.errors import InvalidRequest, StokerError
from stoker.getters import Table

MAX_LAYERS = 4096
_MOST = 1 << 62


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Sizes are bytes; lengths are values of one head; names follow GGUF's keys."""

    architecture: str
    layers: int
    embedding: int
    heads: int  # the most of any layer
    kv_heads: tuple[int, ...]  # one a layer; 0 = this layer has no attention
    key_length: int
    value_length: int
    feed_forward: int  # the widest layer's
    vocabulary: int
    training_context: int
    file_bytes: int  # of all parts
    weight_bytes: int  # of the tensors alone
    key_length_swa: int = 0
    value_length_swa: int = 0
    key_length_mla: int = 0  # MLA (deepseek2): one latent row instead of keys and values
    value_length_mla: int = 0
    kv_lora_rank: int = 0
    sliding_window: int = 0
    sliding_pattern: int = 0
    sliding_layers: tuple[int, ...] = ()  # 1 = this layer sees the window only
    shared_kv_layers: int = 0  # the last so many use the keys of earlier ones
    nextn_layers: int = 0  # draft heads at the end, which keep nothing
    full_attention_interval: int = 0
    recurrent_layers: tuple[int, ...] = ()
    conv_kernel: int = 0
    inner_size: int = 0
    state_size: int = 0
    group_count: int = 0
    wkv_head_size: int = 0
    token_shift: int = 0
    shortconv: int = 0
    kda_head: int = 0
    experts_used: int = 0
    expert_feed_forward: int = 0
    tied_output: bool = False  # the embedding serves as output matrix too
    parts: int = 1
    bytes_by_type: Mapping[str, int] = field(default_factory=dict)
    repack_bytes: Mapping[str, int] = field(default_factory=dict)
    """By kind of CPU ("arm-i8mm", "arm-dotprod", "x86-avx2"): rearranged at load, so that
    these bytes are memory of the process and no longer the mapped file."""
    repack_here: str = ""  # the kind of this CPU; "" = nothing is rearranged


def to_mapping(facts: ModelFacts) -> dict[str, object]:
    """Plain JSON values."""
    return {
        item.name: list(value) if isinstance(value, tuple) else value
        for item in dataclasses.fields(facts)
        if (value := getattr(facts, item.name)) is not None
    }


def of_mapping(data: Mapping[str, object]) -> ModelFacts:
    """Raises InvalidRequest; every number is in 0..2^62."""
    table = Table(data, _fail)
    values: dict[str, object] = {}
    for item in dataclasses.fields(ModelFacts):
        if item.default is dataclasses.MISSING or table.has(item.name):
            values[item.name] = _READ.get(str(item.type), _whole)(table, item.name)
    table.finish()
    return ModelFacts(**values)  # type: ignore[arg-type]


def _whole(table: Table, key: str) -> int:
    return table.whole(key, 0, low=0, high=_MOST)


def _wholes(table: Table, key: str) -> tuple[int, ...]:
    value = table.raw(key, ())
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) > MAX_LAYERS:
        table.refuse(key, f"expected a list of at most {MAX_LAYERS} numbers")
    if not all(type(item) is int and 0 <= item <= _MOST for item in value):
        table.refuse(key, "expected whole numbers")
    return tuple(value)


def _sizes(table: Table, key: str) -> Mapping[str, int]:
    inner = table.table(key)
    return {name: _whole(inner, name) for name in inner.keys()}  # noqa: SIM118 (no mapping)


def _fail(path: str, reason: str) -> StokerError:
    return InvalidRequest(f"cannot read facts of a model: {path}: {reason}")


_READ = {
    "str": lambda table, key: table.text(key, "", max_bytes=4096),
    "bool": lambda table, key: table.flag(key, False),
    "tuple[int, ...]": _wholes,
    "Mapping[str, int]": _sizes,
}
