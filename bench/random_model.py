"""Models of a real shape with random weights, as GGUF files in the cache: ``random_model(NAME)``.

They cost what a trained model of that shape costs and say nothing sensible. The same name gives
the same bytes, kept under a name that holds their recipe's hash. By hand:
``python -m bench.random_model qwen2-tiny``, ``--list`` for the names.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import BinaryIO, Final

from bench.peers import cache_dir, vendored
from bench.random_blocks import F32, Q4_K, Q6_K, Kind, kind_for, size, weights
from bench.random_vocabulary import copied, tiny

RECIPE: Final = 1  # raise it when the same shape shall give other bytes
ALIGNMENT: Final = 32
QWEN2_VOCABULARY: Final = "models/ggml-vocab-qwen2.gguf"


@dataclass(frozen=True, slots=True)
class Shape:
    """``experts`` and ``latent`` are of deepseek2 (MLA) only."""

    arch: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    feed: int
    context: int
    vocabulary: str = ""  # a file of llama.cpp's sources; "" = 256 bytes and a few words
    experts: int = 0
    latent: int = 0
    tied: bool = False  # the embedding is the output too, as in the small Qwen models


SHAPES: Final = {
    "qwen2-1.5b": Shape("qwen2", 28, 1536, 12, 2, 8960, 32768, QWEN2_VOCABULARY, tied=True),
    "qwen2-tiny": Shape("qwen2", 2, 256, 4, 2, 512, 4096),
    "deepseek2-tiny": Shape("deepseek2", 3, 256, 4, 1, 512, 4096, experts=4, latent=128),
    "gemma3-tiny": Shape("gemma3", 12, 256, 4, 1, 512, 4096),
    "mamba-tiny": Shape("mamba", 4, 256, 0, 0, 0, 4096),
}
_WINDOW: Final = 256  # gemma3: what five of six layers see
_HEAD: Final = 64
_STATE: Final = 16  # mamba
_KERNEL: Final = 4
_ROPE: Final = 32  # deepseek2: what of a head is rotated, what is not, and its values
_NOPE: Final = 64
_VALUE: Final = 64
_EXPERT_FEED: Final = 256
_SHARP: Final = 4.0  # the deviation of the logits: a few words are likely, the rest are not

Value = int | float | str


@dataclass(frozen=True, slots=True)
class Tensor:
    """``extents`` as GGUF has them: the row first. ``mean`` 1 is for the norms."""

    name: str
    extents: tuple[int, ...]
    kind: Kind
    deviation: float = 0.0
    mean: float = 0.0

    @property
    def values(self) -> int:
        return math.prod(self.extents)


def random_model(name: str, folder: Path | None = None) -> Path:
    """The file of a shape in ``SHAPES``; written on first use (1.5B: 1 GB, some seconds)."""
    shape = SHAPES[name]
    folder = folder or cache_dir() / "models"
    recipe = hashlib.sha256(f"{RECIPE} {shape}".encode()).hexdigest()[:12]
    path = folder / f"random-{name}-{recipe}.gguf"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        try:
            with part.open("wb") as file:
                write(file, name, shape)
            part.rename(path)
        finally:
            part.unlink(missing_ok=True)
    return path


def write(file: BinaryIO, name: str, shape: Shape) -> None:
    """One whole GGUF (version 3) file: header, keys, tensor list, data."""
    words = copied(vendored() / shape.vocabulary) if shape.vocabulary else tiny()
    keys = [_key(key, value) for key, value in _facts(name, shape).items()]
    tensors = list(_TENSORS[shape.arch](shape, words.size))
    file.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys) + words.count))
    file.write(b"".join(keys) + words.keys)
    offset = 0
    for tensor in tensors:
        extents = struct.pack(f"<I{len(tensor.extents)}Q", len(tensor.extents), *tensor.extents)
        file.write(_text(tensor.name) + extents + struct.pack("<IQ", tensor.kind.number, offset))
        offset += _padded(size(tensor.kind, tensor.values))
    file.write(bytes(_padded(file.tell()) - file.tell()))
    random = Random(RECIPE)
    for tensor in tensors:
        silent = words.silent if tensor.name == "output.weight" else ()
        for data in _data(tensor, random, silent):
            file.write(data)
        file.write(bytes(_padded(file.tell()) - file.tell()))


def _data(tensor: Tensor, random: Random, silent: Sequence[int]) -> Iterator[bytes]:
    if tensor.mean:
        yield struct.pack("<f", tensor.mean) * tensor.values
        return
    made = weights(tensor.kind, tensor.values, tensor.deviation, random)
    if not silent:
        yield from made
        return
    whole, row = bytearray(b"".join(made)), size(tensor.kind, tensor.extents[0])
    for word in silent:
        whole[word * row : (word + 1) * row] = bytes(row)
    yield bytes(whole)


def _facts(name: str, shape: Shape) -> dict[str, Value]:
    arch = shape.arch
    facts: dict[str, Value] = {
        "general.architecture": arch,
        "general.name": f"random {name}",
        "general.file_type": 15,  # MOSTLY_Q4_K_M
        f"{arch}.block_count": shape.layers,
        f"{arch}.context_length": shape.context,
        f"{arch}.embedding_length": shape.width,
        f"{arch}.feed_forward_length": shape.feed,
        f"{arch}.attention.head_count": shape.heads,
        f"{arch}.attention.head_count_kv": shape.kv_heads,
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-6,
        f"{arch}.rope.freq_base": 1e6,
    }
    if arch == "deepseek2":
        facts |= {
            f"{arch}.rope.dimension_count": _ROPE,
            f"{arch}.attention.q_lora_rank": shape.latent,
            f"{arch}.attention.kv_lora_rank": shape.latent,
            f"{arch}.attention.key_length": shape.latent + _ROPE,
            f"{arch}.attention.value_length": shape.latent,
            f"{arch}.attention.key_length_mla": _NOPE + _ROPE,
            f"{arch}.attention.value_length_mla": _VALUE,
            f"{arch}.leading_dense_block_count": 1,
            f"{arch}.expert_count": shape.experts,
            f"{arch}.expert_used_count": 2,
            f"{arch}.expert_shared_count": 1,
            f"{arch}.expert_feed_forward_length": _EXPERT_FEED,
            f"{arch}.expert_weights_scale": 1.0,
        }
    if arch == "gemma3":
        facts |= {
            f"{arch}.attention.key_length": _HEAD,
            f"{arch}.attention.value_length": _HEAD,
            f"{arch}.attention.sliding_window": _WINDOW,
        }
    if arch == "mamba":
        facts |= {
            f"{arch}.ssm.conv_kernel": _KERNEL,
            f"{arch}.ssm.inner_size": 2 * shape.width,
            f"{arch}.ssm.state_size": _STATE,
            f"{arch}.ssm.time_step_rank": shape.width // 16,
        }
        facts = {key: value for key, value in facts.items() if "head_count" not in key}
    return facts


def _qwen2(shape: Shape, words: int) -> Iterator[Tensor]:
    width, head = shape.width, shape.width // shape.heads
    narrow = head * shape.kv_heads
    yield _matrix("token_embd.weight", width, words, wanted=Q6_K)
    yield _norm("output_norm.weight", width)
    if not shape.tied:
        yield _matrix("output.weight", width, words, wanted=Q6_K, gain=_SHARP)
    for layer in range(shape.layers):
        at = f"blk.{layer}."
        fine = Q6_K if _finer(layer, shape.layers) else Q4_K
        yield _norm(at + "attn_norm.weight", width)
        for part, rows in (("q", width), ("k", narrow), ("v", narrow)):
            kind = fine if part == "v" else Q4_K
            yield _matrix(f"{at}attn_{part}.weight", width, rows, wanted=kind)
            yield Tensor(f"{at}attn_{part}.bias", (rows,), F32, 0.02)
        yield _matrix(at + "attn_output.weight", width, width)
        yield _norm(at + "ffn_norm.weight", width)
        yield _matrix(at + "ffn_gate.weight", width, shape.feed)
        yield _matrix(at + "ffn_up.weight", width, shape.feed)
        yield _matrix(at + "ffn_down.weight", shape.feed, width, wanted=fine)


def _deepseek2(shape: Shape, words: int) -> Iterator[Tensor]:
    width, heads, latent = shape.width, shape.heads, shape.latent
    yield _matrix("token_embd.weight", width, words, wanted=Q6_K)
    yield _norm("output_norm.weight", width)
    yield _matrix("output.weight", width, words, wanted=Q6_K, gain=_SHARP)
    for layer in range(shape.layers):
        at = f"blk.{layer}."
        yield _norm(at + "attn_norm.weight", width)
        yield _matrix(at + "attn_q_a.weight", width, latent)
        yield _norm(at + "attn_q_a_norm.weight", latent)
        yield _matrix(at + "attn_q_b.weight", latent, heads * (_NOPE + _ROPE))
        yield _matrix(at + "attn_kv_a_mqa.weight", width, latent + _ROPE)
        yield _norm(at + "attn_kv_a_norm.weight", latent)
        yield _matrix(at + "attn_k_b.weight", _NOPE, latent, heads)
        yield _matrix(at + "attn_v_b.weight", latent, _VALUE, heads)
        yield _matrix(at + "attn_output.weight", heads * _VALUE, width)
        yield _norm(at + "ffn_norm.weight", width)
        if layer == 0:  # leading_dense_block_count
            yield from _feed(at, "", width, shape.feed)
            continue
        yield Tensor(at + "ffn_gate_inp.weight", (width, shape.experts), F32, width**-0.5)
        yield from _feed(at, "_exps", width, _EXPERT_FEED, shape.experts)
        yield from _feed(at, "_shexp", width, _EXPERT_FEED)


def _gemma3(shape: Shape, words: int) -> Iterator[Tensor]:
    width, rows, narrow = shape.width, _HEAD * shape.heads, _HEAD * shape.kv_heads
    yield _matrix("token_embd.weight", width, words)  # and the output: rearranged once more
    yield _norm("output_norm.weight", width)
    for layer in range(shape.layers):
        at = f"blk.{layer}."
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            yield _norm(f"{at}{name}.weight", width)
        for name in ("attn_q_norm", "attn_k_norm"):
            yield _norm(f"{at}{name}.weight", _HEAD)
        for part, size_of in (("q", rows), ("k", narrow), ("v", narrow)):
            yield _matrix(f"{at}attn_{part}.weight", width, size_of)
        yield _matrix(at + "attn_output.weight", rows, width)
        yield from _feed(at, "", width, shape.feed)


def _mamba(shape: Shape, words: int) -> Iterator[Tensor]:
    width, inner, rank = shape.width, 2 * shape.width, shape.width // 16
    yield _matrix("token_embd.weight", width, words, wanted=Q6_K)
    yield _norm("output_norm.weight", width)
    for layer in range(shape.layers):
        at = f"blk.{layer}."
        yield _norm(at + "attn_norm.weight", width)
        yield _matrix(at + "ssm_in.weight", width, 2 * inner)
        yield Tensor(at + "ssm_conv1d.weight", (_KERNEL, inner), F32, 0.1)
        yield Tensor(at + "ssm_conv1d.bias", (inner,), F32, 0.1)
        yield _matrix(at + "ssm_x.weight", inner, rank + 2 * _STATE)
        yield Tensor(at + "ssm_dt.weight", (rank, inner), F32, 0.1)
        yield Tensor(at + "ssm_dt.bias", (inner,), F32, 0.1)
        yield Tensor(at + "ssm_a", (_STATE, inner), F32, 0.1)
        yield Tensor(at + "ssm_d", (inner,), F32, 0.1)
        yield _matrix(at + "ssm_out.weight", inner, width)


_TENSORS: Final[dict[str, Callable[[Shape, int], Iterator[Tensor]]]] = {
    "qwen2": _qwen2,
    "deepseek2": _deepseek2,
    "gemma3": _gemma3,
    "mamba": _mamba,
}


def _feed(at: str, suffix: str, width: int, feed: int, *experts: int) -> Iterator[Tensor]:
    yield _matrix(f"{at}ffn_gate{suffix}.weight", width, feed, *experts)
    yield _matrix(f"{at}ffn_up{suffix}.weight", width, feed, *experts)
    yield _matrix(f"{at}ffn_down{suffix}.weight", feed, width, *experts)


def _finer(layer: int, layers: int) -> bool:
    """The layers in which Q4_K_M spends six bits: both ends and every third between."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * eighth or (layer - eighth) % 3 == 2


def _matrix(name: str, *extents: int, wanted: Kind = Q4_K, gain: float = 1.0) -> Tensor:
    """Values that keep the size of what passes through: deviation 1/sqrt(row)."""
    return Tensor(name, extents, kind_for(extents[0], wanted), gain * float(extents[0]) ** -0.5)


def _norm(name: str, width: int) -> Tensor:
    return Tensor(name, (width,), F32, mean=1.0)


def _key(key: str, value: Value) -> bytes:
    """GGUF's value types: 4 = uint32, 6 = float32, 8 = string."""
    if isinstance(value, str):
        return _text(key) + struct.pack("<I", 8) + _text(value)
    if isinstance(value, float):
        return _text(key) + struct.pack("<If", 6, value)
    return _text(key) + struct.pack("<II", 4, value)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", choices=sorted(SHAPES))
    parser.add_argument("--folder", type=Path, help="instead of the cache")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list or not options.name:
        for name, shape in SHAPES.items():
            print(f"{name:16} {shape}")
        return 0
    path = random_model(options.name, options.folder)
    print(f"{path} {path.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
