"""Writes a LoRA adapter with random matrices for SmolLM2-135M's shape, as GGUF version 3."""

from __future__ import annotations

import random
import struct
from array import array
from pathlib import Path

WIDTH = 576
RANK = 4
_STRING, _FLOAT = 8, 6
_ALIGNMENT = 32


def write(
    path: Path, seed: int, *, layers: int = 4, arch: str = "llama", size: float = 0.1
) -> Path:
    """Adapters of the query matrices of the first layers."""
    draw = random.Random(seed)
    tensors = []
    for layer in range(layers):
        name = f"blk.{layer}.attn_q.weight"
        for suffix, extents in (("lora_a", (WIDTH, RANK)), ("lora_b", (RANK, WIDTH))):
            values = array("f", (draw.gauss(0, size) for _ in range(WIDTH * RANK)))
            tensors.append((f"{name}.{suffix}", extents, values.tobytes()))
    facts = [
        _fact("general.architecture", _STRING, _text(arch)),
        _fact("general.type", _STRING, _text("adapter")),
        _fact("adapter.type", _STRING, _text("lora")),
        _fact("adapter.lora.alpha", _FLOAT, struct.pack("<f", float(RANK))),
    ]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(facts)) + b"".join(facts)
    at = 0
    for name, extents, data in tensors:
        head += _text(name) + struct.pack("<I2QIQ", 2, *extents, 0, at)
        at += len(data)  # a multiple of the alignment already
    head += b"\0" * (-len(head) % _ALIGNMENT)
    path.write_bytes(head + b"".join(data for _, _, data in tensors))
    return path


def _fact(key: str, kind: int, value: bytes) -> bytes:
    return _text(key) + struct.pack("<I", kind) + value


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data
