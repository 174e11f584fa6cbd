"""Facts of a model file for the memory plan: its header's keys and tensors, made sense of.

Nothing is loaded. Key names: ggml's docs/gguf.md and llama.cpp's llama-arch.cpp; which tensors
are rearranged at load: ggml-cpu/repack.cpp, ggml_repack_get_optimal_repack_type.
"""

from __future__ import annotations

import contextlib
import re
import resource
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stoker.events.model_facts import MAX_LAYERS, ModelFacts, to_mapping
from stoker.runner import gguf

MAX_PARTS: Final = 512
_CAP_IPC_LOCK: Final = 14
MAX_LENGTH: Final = 1 << 24  # of a row, a context, a vocabulary
_PART: Final = re.compile(r"(.+-)(\d{5})(-of-\d{5}\.gguf)")
_NAMES: Final = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K",
    11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS",
    19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 29: "IQ1_M", 30: "BF16",
    34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip
# kind of CPU -> type -> rows must be a multiple of this
_REPACKS: Final = {
    "arm-i8mm": {"Q4_0": 4, "Q8_0": 4, "IQ4_NL": 4, "MXFP4": 4, "Q4_K": 8, "Q5_K": 8, "Q6_K": 8},
    "arm-dotprod": {"Q4_0": 4, "Q8_0": 4, "IQ4_NL": 4, "MXFP4": 4, "Q4_K": 8, "Q5_K": 8, "Q6_K": 8},
    "x86-avx512": {"Q4_0": 8, "Q4_K": 8, "IQ4_NL": 8, "MXFP4": 8, "Q2_K": 8},
    "x86-avx2": {"Q4_0": 8, "Q4_K": 8, "IQ4_NL": 8, "MXFP4": 8},
}
_FLAGS: Final = (
    ("arm-i8mm", "MATMUL_INT8 = 1"),
    ("arm-dotprod", "DOTPROD = 1"),
    ("x86-avx512", "AVX512 = 1"),
    ("x86-avx2", "AVX2 = 1"),
)
# Looked up, added or convolved, never the left side of a matrix product.
_NO_PRODUCT: Final = (b"token_embd", b"position_embd", b"token_types", b"per_layer_token_embd",
                      b"ssm_conv1d", b"shortconv.conv", b"rope_freqs", b"_norm")  # fmt: skip
_EXPERTS: Final = b"_exps.weight"


def inspection(path: str, system: str) -> dict[str, object]:
    """The answer to Inspect: the file's facts, and how much this process may lock (-1 = all)."""
    return {"model": to_mapping(facts(path, system)), "lock_limit_bytes": lock_limit_bytes()}


def lock_limit_bytes() -> int:
    """RLIMIT_MEMLOCK; whoever has CAP_IPC_LOCK is not bound by it."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        rows = Path("/proc/self/status").read_text().splitlines()
        effective = next(row for row in rows if row.startswith("CapEff:")).split()[1]
        if int(effective, 16) >> _CAP_IPC_LOCK & 1:
            return -1
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return -1 if soft == resource.RLIM_INFINITY else soft


def facts(path: str, system: str = "") -> ModelFacts:
    """Raises ModelUnavailable. ``system`` is llama.cpp's line of CPU features."""
    first = gguf.read(path)
    headers = [first, *map(gguf.read, _siblings(path, first))]
    values = _Values(path, first)
    by_type: Counter[str] = Counter()
    repack: dict[str, int] = dict.fromkeys(_REPACKS, 0)
    tied = not any(t.name == b"output.weight" for header in headers for t in header.tensors)
    for header in headers:
        for tensor in header.tensors:
            by_type[_NAMES.get(tensor.kind, f"type-{tensor.kind}")] += tensor.bytes
            for cpu, rows in _REPACKS.items():
                repack[cpu] += _repacked(tensor, rows, tied=tied)
    return ModelFacts(
        **values.shape(),  # type: ignore[arg-type]
        vocabulary=first.vocabulary or values.whole("vocab_size"),
        file_bytes=sum(header.size_bytes for header in headers),
        weight_bytes=by_type.total(),
        tied_output=tied,
        parts=len(headers),
        bytes_by_type=dict(by_type),
        repack_bytes=repack,
        repack_here=_kind_of_cpu(system),
    )


def _siblings(path: str, header: gguf.Header) -> Iterator[str]:
    """The other parts of a model that is split over files, as llama.cpp names them."""
    count = header.values.get("split.count", 1)
    if not isinstance(count, int) or count <= 1:
        return
    match = _PART.fullmatch(Path(path).name)
    if match is None or not 1 < count <= MAX_PARTS or int(match[2]) != 1:
        raise gguf.refuse(path, f"it is one of {count} parts, and not named as the first of them")
    for number in range(2, count + 1):
        yield str(Path(path).with_name(f"{match[1]}{number:05}{match[3]}"))


def _repacked(tensor: gguf.Tensor, rows: dict[str, int], *, tied: bool) -> int:
    """Bytes of this tensor that the CPU backend keeps a rearranged copy of."""
    embedding = tensor.name == b"token_embd.weight"
    if embedding and not tied:
        return 0
    if not embedding and (
        not tensor.name.endswith(b".weight") or any(word in tensor.name for word in _NO_PRODUCT)
    ):
        return 0
    step = rows.get(_NAMES.get(tensor.kind, ""))
    wanted = 3 if tensor.name.endswith(_EXPERTS) else 2
    if step is None or _dimensions(tensor) != wanted or tensor.extents[1] % step:
        return 0
    return tensor.bytes


def _dimensions(tensor: gguf.Tensor) -> int:
    extents = list(tensor.extents)
    while len(extents) > 1 and extents[-1] == 1:
        extents.pop()
    return len(extents)


def _kind_of_cpu(system: str) -> str:
    if "REPACK = 1" not in system:
        return ""
    return next((kind for kind, flag in _FLAGS if flag in system), "")


class _Values:
    """Numbers of the header below the architecture's name, each within its bounds."""

    def __init__(self, path: str, header: gguf.Header) -> None:
        self._path, self._values = path, header.values
        name = header.values.get("general.architecture", "")
        self._arch = name if isinstance(name, str) else ""
        self._layers = self.whole("block_count", MAX_LAYERS)

    def whole(self, key: str, high: int = MAX_LENGTH) -> int:
        """A number, or the largest of a list with one number a layer; 0 = absent."""
        value = self._values.get(f"{self._arch}.{key}", 0)
        found = max(value, default=0) if isinstance(value, tuple) else value
        if not isinstance(found, int) or not 0 <= found <= high:
            raise gguf.refuse(self._path, f"its header claims {key} {found!r:.40}")
        return int(found)

    def each(self, key: str, default: int) -> tuple[int, ...]:
        """One number a layer."""
        value = self._values.get(f"{self._arch}.{key}", default)
        if not isinstance(value, tuple):
            return (self.whole(key) if f"{self._arch}.{key}" in self._values else default,) * (
                self._layers
            )
        if len(value) < self._layers or not all(0 <= item <= MAX_LENGTH for item in value):
            raise gguf.refuse(self._path, f"its header claims an odd {key}")
        return value[: self._layers]

    def listed(self, key: str) -> tuple[int, ...]:
        """Flags of the layers where the header lists them, else nothing."""
        value = self._values.get(f"{self._arch}.{key}", ())
        if not isinstance(value, tuple):
            return ()
        return tuple(1 if item else 0 for item in value[: self._layers])

    def shape(self) -> dict[str, object]:
        heads = self.whole("attention.head_count")
        embedding = self.whole("embedding_length")
        head = embedding // heads if heads else 0
        pattern = f"{self._arch}.attention.sliding_window_pattern"
        single = isinstance(self._values.get(pattern, 0), int)
        out: dict[str, object] = {name: self.whole(key) for name, key in _PLAIN.items()}
        key_length = self.whole("attention.key_length") or head
        value_length = self.whole("attention.value_length") or head
        return out | {
            "architecture": self._arch,
            "layers": self._layers,
            "heads": heads,
            "kv_heads": self.each("attention.head_count_kv", heads),
            "key_length": key_length,
            "value_length": value_length,
            "key_length_swa": self.whole("attention.key_length_swa") or key_length,
            "value_length_swa": self.whole("attention.value_length_swa") or value_length,
            "sliding_pattern": self.whole("attention.sliding_window_pattern") if single else 0,
            "sliding_layers": self.listed("attention.sliding_window_pattern"),
            "recurrent_layers": self.listed("attention.recurrent_layers"),
        }


_PLAIN: Final = {
    "embedding": "embedding_length",
    "feed_forward": "feed_forward_length",
    "training_context": "context_length",
    "key_length_mla": "attention.key_length_mla",
    "value_length_mla": "attention.value_length_mla",
    "kv_lora_rank": "attention.kv_lora_rank",
    "sliding_window": "attention.sliding_window",
    "shared_kv_layers": "attention.shared_kv_layers",
    "nextn_layers": "nextn_predict_layers",
    "full_attention_interval": "full_attention_interval",
    "conv_kernel": "ssm.conv_kernel",
    "inner_size": "ssm.inner_size",
    "state_size": "ssm.state_size",
    "group_count": "ssm.group_count",
    "wkv_head_size": "wkv.head_size",
    "token_shift": "token_shift_count",
    "shortconv": "shortconv.l_cache",
    "kda_head": "kda.head_dim",
    "experts_used": "expert_used_count",
    "expert_feed_forward": "expert_feed_forward_length",
}
