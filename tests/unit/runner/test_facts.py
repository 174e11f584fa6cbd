"""What the runner reads from a model file's header, and what it refuses to believe."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import pytest
from bench.random_model import random_model
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import ModelUnavailable
from stoker.events.model_facts import ModelFacts, of_mapping, to_mapping
from stoker.runner import facts as runner_facts
from stoker.runner import gguf

ARM = "CPU : NEON = 1 | DOTPROD = 1 | REPACK = 1 | "
AVX2 = "CPU : AVX2 = 1 | REPACK = 1 | "
Q4_0, Q6_K, F32 = 2, 14, 0


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def _key(name: str, value: int | str | list[int]) -> bytes:
    if isinstance(value, str):
        return _text(name) + struct.pack("<I", 8) + _text(value)
    if isinstance(value, list):
        packed = struct.pack(f"<{len(value)}I", *value)
        return _text(name) + struct.pack("<IIQ", 9, 4, len(value)) + packed
    return _text(name) + struct.pack("<II", 4, value)


def model_file(
    path: Path,
    keys: dict[str, int | str | list[int]],
    tensors: dict[str, tuple[int, tuple[int, ...]]],
) -> Path:
    """A GGUF with these keys and tensors (kind, extents); the data is zeros at the end."""
    head = b"GGUF" + struct.pack("<Iqq", 3, len(tensors), len(keys))
    body = b"".join(_key(name, value) for name, value in keys.items())
    for name, (kind, extents) in tensors.items():
        body += _text(name) + struct.pack("<I", len(extents))
        body += struct.pack(f"<{len(extents)}q", *extents) + struct.pack("<IQ", kind, 0)
    path.write_bytes(head + body + bytes(1 << 20))
    return path


LLAMA: dict[str, int | str | list[int]] = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.embedding_length": 256,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.feed_forward_length": 512,
    "llama.context_length": 2048,
}
WEIGHTS: dict[str, tuple[int, tuple[int, ...]]] = {
    "token_embd.weight": (Q4_0, (256, 64)),
    "blk.0.ffn_up.weight": (Q4_0, (256, 512)),
    "blk.0.attn_norm.weight": (F32, (256,)),
}


def read(path: Path, system: str = "") -> ModelFacts:
    found = runner_facts.facts(str(path), system)
    assert of_mapping(to_mapping(found)) == found
    return found


def test_shape_of_a_plain_model(tmp_path: Path) -> None:
    found = read(model_file(tmp_path / "m.gguf", LLAMA, WEIGHTS))
    assert (found.layers, found.embedding, found.heads, found.kv_heads) == (2, 256, 4, (2, 2))
    assert (found.key_length, found.value_length, found.training_context) == (64, 64, 2048)
    assert found.bytes_by_type == {"Q4_0": 256 * (64 + 512) // 32 * 18, "F32": 1024}
    assert found.tied_output


def test_tied_embedding_is_rearranged_too_and_an_untied_one_is_not(tmp_path: Path) -> None:
    tied = read(model_file(tmp_path / "t.gguf", LLAMA, WEIGHTS), ARM)
    assert tied.repack_here == "arm-dotprod"
    assert tied.repack_bytes["arm-dotprod"] == 256 * (64 + 512) // 32 * 18
    own = read(
        model_file(tmp_path / "o.gguf", LLAMA, WEIGHTS | {"output.weight": (Q6_K, (256, 64))}),
        AVX2,
    )
    assert own.repack_bytes["x86-avx2"] == 256 * 512 // 32 * 18
    assert own.repack_bytes["arm-i8mm"] == 256 * 512 // 32 * 18 + 64 * 210


def test_rows_that_fill_no_group_are_left_alone(tmp_path: Path) -> None:
    found = read(
        model_file(tmp_path / "m.gguf", LLAMA, {"blk.0.ffn_up.weight": (Q4_0, (256, 510))}), ARM
    )
    assert found.repack_bytes == dict.fromkeys(found.repack_bytes, 0)


def test_latent_attention_is_seen(tmp_path: Path) -> None:
    found = read(random_model("deepseek2-tiny", tmp_path))
    assert found.architecture == "deepseek2"
    assert (found.kv_lora_rank, found.key_length, found.key_length_mla) == (128, 160, 96)
    assert found.kv_heads == (1, 1, 1)


def test_numbers_for_each_layer_are_kept(tmp_path: Path) -> None:
    keys = LLAMA | {"llama.attention.head_count_kv": [2, 0]}
    assert read(model_file(tmp_path / "m.gguf", keys, WEIGHTS)).kv_heads == (2, 0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.block_count", 1 << 31),
        ("llama.embedding_length", 1 << 30),
        ("llama.attention.head_count_kv", [2]),
        ("llama.attention.head_count_kv", [2, 1 << 31]),
        ("llama.context_length", "long"),
        ("split.count", 3),
        ("split.count", 1 << 20),
    ],
)
def test_odd_claims_are_refused(tmp_path: Path, key: str, value: int | str | list[int]) -> None:
    path = model_file(tmp_path / "m.gguf", LLAMA | {key: value}, WEIGHTS)
    with pytest.raises(ModelUnavailable, match="cannot load model"):
        read(path)


def test_parts_of_a_split_model_are_counted_together(tmp_path: Path) -> None:
    first = tmp_path / "big-00001-of-00002.gguf"
    split = LLAMA | {"split.count": 2}
    model_file(first, split, WEIGHTS)
    model_file(tmp_path / "big-00002-of-00002.gguf", split, {"output.weight": (Q6_K, (256, 64))})
    found = read(first)
    assert (found.parts, found.tied_output) == (2, False)
    assert found.file_bytes == sum(path.stat().st_size for path in tmp_path.iterdir())
    (tmp_path / "big-00002-of-00002.gguf").unlink()
    with pytest.raises(ModelUnavailable, match="00002-of-00002"):
        read(first)


def test_header_full_of_texts_is_not_kept_in_memory(tmp_path: Path) -> None:
    keys: dict[str, int | str | list[int]] = {f"a.{n}": "x" * 4000 for n in range(2000)}
    path = model_file(tmp_path / "m.gguf", keys | LLAMA, WEIGHTS)
    kept = gguf.read(str(path)).values
    assert sum(len(str(value)) for value in kept.values()) < 2 << 20


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_headers_give_facts_or_a_reason(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "damaged"
    folder.mkdir(exist_ok=True)
    path = model_file(folder / "m.gguf", LLAMA | {"split.count": 1}, WEIGHTS)
    content = bytearray(path.read_bytes()[:4096])
    end = data.draw(st.integers(0, len(content)))
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, 700))
        content[at] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content[:end]) if end % 3 else bytes(content) + bytes(1 << 20))
    with contextlib.suppress(ModelUnavailable):
        read(path)
