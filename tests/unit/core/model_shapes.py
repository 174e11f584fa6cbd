"""Shapes of real models for memory tests, as their files' headers give them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from stoker.events.model_facts import ModelFacts

MIB: Final = 1 << 20
GIB: Final = 1 << 30

SMOLLM2: Final = ModelFacts(
    architecture="llama", layers=30, embedding=576, heads=9, kv_heads=(3,) * 30, key_length=64,
    value_length=64, key_length_swa=64, value_length_swa=64, feed_forward=1536,
    vocabulary=49152, training_context=8192, file_bytes=98_362_432, weight_bytes=96_576_768,
    tied_output=True, bytes_by_type={"Q4_1": 66_355_200, "Q8_0": 30_081_024, "F32": 140_544},
    repack_bytes={"arm-dotprod": 30_081_024},
)  # fmt: skip
QWEN_1_5B: Final = ModelFacts(
    architecture="qwen2", layers=28, embedding=1536, heads=12, kv_heads=(2,) * 28,
    key_length=128, value_length=128, key_length_swa=128, value_length_swa=128,
    feed_forward=8960, vocabulary=151_936, training_context=32_768, file_bytes=992 * MIB,
    weight_bytes=985 * MIB, tied_output=True, bytes_by_type={"Q4_K": 985 * MIB},
    repack_bytes={"arm-dotprod": 900 * MIB},
)  # fmt: skip
DEEPSEEK: Final = replace(
    SMOLLM2, architecture="deepseek2", layers=27, embedding=2048, heads=16, kv_heads=(1,) * 27,
    key_length=576, value_length=512, key_length_swa=576, value_length_swa=512,
    key_length_mla=192, value_length_mla=128, kv_lora_rank=512, feed_forward=10944,
)  # fmt: skip
GEMMA3: Final = replace(
    SMOLLM2, architecture="gemma3", layers=26, embedding=1152, heads=4, kv_heads=(1,) * 26,
    key_length=256, value_length=256, key_length_swa=256, value_length_swa=256,
    sliding_window=512, feed_forward=6912, training_context=32_768,
)  # fmt: skip
MAMBA: Final = replace(
    SMOLLM2, architecture="mamba", layers=24, embedding=768, heads=0, kv_heads=(0,) * 24,
    key_length=0, value_length=0, key_length_swa=0, value_length_swa=0, feed_forward=0,
    conv_kernel=4, inner_size=1536, state_size=16,
)  # fmt: skip
