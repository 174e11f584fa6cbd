"""Makes the models of the delta benchmark as F32 files: random weights, or real ones, and changes.

Runs in the peers' environment, which has numpy: ``python -m bench.delta_weights``. A change is
of low rank, as fine-tunes are, and σ is its size relative to that of the weights.
"""

from __future__ import annotations

import argparse
import ctypes
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from stoker_ota.core import gguf_layout
from stoker_ota.values.gguf import Layout

RANK: Final = 16
EMBEDDING: Final = 1024
FORWARD: Final = 2816
VOCABULARY: Final = 2048
_F32: Final = 0
_HEAD: Final = 16 << 20
_ROWS: Final = {2: "q4_0", 3: "q4_1", 8: "q8_0", 12: "q4_K", 13: "q5_K", 14: "q6_K"}
_UINT32: Final = 4
_FLOAT32: Final = 6
_STRING: Final = 8
Weights = Any  # a numpy array
Named = tuple[str, Weights]


def changed(name: str, weights: Weights, sigma: float, only: str, seed: int) -> Weights:
    """The weights with a low-rank change, if their name holds ``only``."""
    if weights.ndim != 2 or sigma == 0 or only not in name:
        return weights
    draw = np.random.default_rng([seed, *name.encode()])
    rows, columns = weights.shape
    left = draw.standard_normal((rows, RANK), dtype=np.float32)
    change = left @ draw.standard_normal((RANK, columns), dtype=np.float32)
    change *= sigma * weights.std() / np.sqrt(RANK)
    change += weights
    return change


def random_tensors(layers: int) -> Iterator[Named]:
    shapes = [("token_embd.weight", (VOCABULARY, EMBEDDING))]
    for layer in range(layers):
        at = f"blk.{layer}"
        shapes += [(f"{at}.attn_{x}.weight", (EMBEDDING, EMBEDDING)) for x in ("q", "k", "v")]
        shapes += [
            (f"{at}.attn_output.weight", (EMBEDDING, EMBEDDING)),
            (f"{at}.ffn_gate.weight", (FORWARD, EMBEDDING)),
            (f"{at}.ffn_up.weight", (FORWARD, EMBEDDING)),
            (f"{at}.ffn_down.weight", (EMBEDDING, FORWARD)),
        ]
    shapes.append(("output.weight", (VOCABULARY, EMBEDDING)))
    for name, shape in shapes:
        draw = np.random.default_rng([1, *name.encode()])
        yield name, draw.standard_normal(shape, dtype=np.float32) * np.float32(0.02)
    norms = [f"blk.{n}.{kind}_norm.weight" for n in range(layers) for kind in ("attn", "ffn")]
    for name in (*norms, "output_norm.weight"):
        yield name, np.ones(EMBEDDING, dtype=np.float32)


def random_keys(layers: int) -> tuple[int, bytes]:
    numbers = {
        "block_count": layers, "context_length": 2048, "embedding_length": EMBEDDING,
        "feed_forward_length": FORWARD, "attention.head_count": 16, "vocab_size": VOCABULARY,
        "rope.dimension_count": 64,
    }  # fmt: skip
    rows = [_text("general.architecture") + struct.pack("<I", _STRING) + _text("llama")]
    rows += [_text(f"llama.{k}") + struct.pack("<II", _UINT32, v) for k, v in numbers.items()]
    epsilon = _text("llama.attention.layer_norm_rms_epsilon")
    rows.append(epsilon + struct.pack("<If", _FLOAT32, 1e-5))
    return len(rows), b"".join(rows)


def real_tensors(model: Path, layout: Layout, base: ctypes.CDLL) -> Iterator[Named]:
    """Every tensor as floats, by ggml's own dequantisation."""
    with model.open("rb") as file:
        for tensor in layout.tensors:
            file.seek(tensor.offset)
            raw = file.read(tensor.length)
            count = int(np.prod(tensor.shape))
            if tensor.kind == _F32:
                out = np.frombuffer(raw, np.float32, count).copy()
            else:
                out = np.empty(count, np.float32)
                function = getattr(base, f"dequantize_row_{_ROWS[tensor.kind]}")
                function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64]
                function(raw, out.ctypes.data, count)
            yield tensor.name, out.reshape(tensor.shape[::-1])


def real_keys(model: Path, layout: Layout) -> tuple[int, bytes]:
    """The model's own keys, as they are: from the counts up to the first tensor's description."""
    with model.open("rb") as file:
        head = file.read(layout.data_off)
    first = min(head.index(_text(tensor.name)) for tensor in layout.tensors)
    count: int = struct.unpack_from("<Q", head, 16)[0]
    return count, head[24:first]


def write(path: Path, keys: tuple[int, bytes], tensors: list[tuple[str, tuple[int, ...]]],
          weights: Iterator[Weights]) -> None:  # fmt: skip
    """An F32 GGUF file; the weights come one by one, so that one is in memory."""
    rows, at = [], 0
    for name, shape in tensors:
        dims = shape[::-1]
        rows.append(_text(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims))
        rows.append(struct.pack("<IQ", _F32, at))
        at += -(-4 * int(np.prod(shape)) // 32) * 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), keys[0]) + keys[1] + b"".join(rows)
    with path.open("wb") as file:
        _padded(file, head)
        for one in weights:
            _padded(file, np.ascontiguousarray(one, np.float32).tobytes())


def _padded(file: BinaryIO, data: bytes) -> None:
    file.write(data + bytes(-len(data) % 32))


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--model", type=Path, help="real weights; random ones without it")
    parser.add_argument("--libs", type=Path, help="where libggml-base.so is, for --model")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--sigma", type=float, default=0.0)
    parser.add_argument("--only", default="", help="change tensors with this in their name")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    if options.model:
        with options.model.open("rb") as file:
            layout = gguf_layout.parse(file.read(_HEAD), options.model.stat().st_size)
        base = ctypes.CDLL(str(options.libs / "libggml-base.so"))
        keys = real_keys(options.model, layout)
        shapes = [(tensor.name, tensor.shape[::-1]) for tensor in layout.tensors]
        tensors = real_tensors(options.model, layout, base)
    else:
        keys = random_keys(options.layers)
        shapes = [(name, weights.shape) for name, weights in random_tensors(options.layers)]
        tensors = random_tensors(options.layers)
    weights = (changed(n, w, options.sigma, options.only, options.seed) for n, w in tensors)
    write(options.output, keys, shapes, weights)


if __name__ == "__main__":
    main()
