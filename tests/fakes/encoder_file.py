"""Writes a tiny BERT with random weights as GGUF: a model that reads and cannot write."""

from __future__ import annotations

import random
import struct
from array import array
from pathlib import Path

from bench.random_model import ALIGNMENT, Value, _key, _padded, _text
from bench.random_vocabulary import tiny

WIDTH, HEADS, FEED, LAYERS, CONTEXT = 64, 4, 128, 2, 128
_FACTS: dict[str, Value] = {
    "general.architecture": "bert",
    "bert.block_count": LAYERS,
    "bert.context_length": CONTEXT,
    "bert.embedding_length": WIDTH,
    "bert.feed_forward_length": FEED,
    "bert.attention.head_count": HEADS,
    "bert.attention.layer_norm_epsilon": 1e-6,
    "bert.pooling_type": 1,
    "tokenizer.ggml.token_type_count": 2,
}


def write(path: Path) -> Path:
    words, draw = tiny(), random.Random(1)
    head, data = b"", b""
    tensors = list(_tensors(words.size))
    for name, extents in tensors:
        head += _text(name) + struct.pack(f"<I{len(extents)}Q", len(extents), *extents)
        head += struct.pack("<IQ", 0, len(data))  # F32
        count = extents[0] * (extents[1] if len(extents) > 1 else 1)
        data += array("f", (draw.gauss(0, 0.1) for _ in range(count))).tobytes()
        data += b"\0" * (_padded(len(data)) - len(data))
    keys = b"".join(_key(key, value) for key, value in _FACTS.items())
    start = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(_FACTS) + words.count)
    whole = start + keys + words.keys + head
    path.write_bytes(whole + b"\0" * (-len(whole) % ALIGNMENT) + data)
    return path


def _tensors(words: int) -> list[tuple[str, tuple[int, ...]]]:
    out: list[tuple[str, tuple[int, ...]]] = [
        ("token_embd.weight", (WIDTH, words)),
        ("position_embd.weight", (WIDTH, CONTEXT)),
        ("token_embd_norm.weight", (WIDTH,)),
        ("token_embd_norm.bias", (WIDTH,)),
    ]
    for layer in range(LAYERS):
        at = f"blk.{layer}."
        out += [(f"{at}attn_{part}.weight", (WIDTH, WIDTH)) for part in ("q", "k", "v", "output")]
        out += [(f"{at}ffn_up.weight", (WIDTH, FEED)), (f"{at}ffn_down.weight", (FEED, WIDTH))]
        for norm in ("attn_output_norm", "layer_output_norm"):
            out += [(f"{at}{norm}.weight", (WIDTH,)), (f"{at}{norm}.bias", (WIDTH,))]
    return out
