"""Bytes of the key-value cache and the parts beside it, against llama.cpp's own numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.core.model_shapes import DEEPSEEK, GEMMA3, MAMBA, MIB, QWEN_1_5B, SMOLLM2

from stoker.core import memory_size
from stoker.core.memory_size import Shape
from stoker.events.model_facts import ModelFacts


@pytest.mark.parametrize(
    ("kv_type", "mib"),
    [("f16", 360.0), ("q8_0", 191.25), ("q4_0", 101.25)],  # as llama.cpp logs them
)
def test_smollm2_at_four_times_4096(kv_type: str, mib: float) -> None:
    assert memory_size.kv_bytes(SMOLLM2, Shape(4 * 4096, 5, kv_type)) == mib * MIB


@pytest.mark.parametrize(
    ("facts", "bytes_a_cell"),
    [
        (QWEN_1_5B, 28 * 2 * 2 * 128 * 2),
        (DEEPSEEK, 27 * 576 * 2),  # one latent row, no values
        (GEMMA3, 26 * 2 * 256 * 2),  # in full: a window could not be cut back to a prefix
    ],
)
def test_cells_of_other_shapes(facts: ModelFacts, bytes_a_cell: int) -> None:
    assert memory_size.kv_bytes(facts, Shape(8192, 3)) == 8192 * bytes_a_cell


def test_windows_keep_what_every_sequence_sees_and_a_step() -> None:
    full, window, states = memory_size.layers(GEMMA3)
    assert (len(full), len(window), states) == (4, 22, [])
    assert full[0] == 5
    narrow = memory_size.window_cells(GEMMA3, Shape(8192, 3, swa_full=False))
    assert narrow == 512 * 3 + 512


def test_states_cost_the_same_at_any_context() -> None:
    short, long = (memory_size.kv_bytes(MAMBA, Shape(cells, 5)) for cells in (256, 65536))
    assert short == long == 24 * 5 * 4 * (3 * 1536 + 16 * 1536)


def test_layers_without_attention_and_draft_heads_keep_nothing() -> None:
    hybrid = replace(SMOLLM2, architecture="lfm2", kv_heads=(0, 3) * 15, shortconv=3)
    full, _, states = memory_size.layers(hybrid)
    assert (len(full), len(states)) == (15, 15)
    assert len(memory_size.layers(replace(SMOLLM2, nextn_layers=2))[0]) == 28


def test_layers_that_use_earlier_keys_keep_none() -> None:
    sharing = replace(SMOLLM2, architecture="gemma4", shared_kv_layers=10)
    assert len(memory_size.layers(sharing)[0]) == 20


def test_contexts_are_rounded_up_as_llama_does() -> None:
    one = memory_size.kv_bytes(SMOLLM2, Shape(1, 1))
    assert one == memory_size.kv_bytes(SMOLLM2, Shape(256, 1)) > 0


@pytest.mark.parametrize(
    ("cells", "batch", "flash", "mib"),
    [(4096, 512, True, 17.5), (20480, 512, True, 33.8), (4096, 512, False, 87.1)],
)
def test_work_buffer_of_smollm2(cells: int, batch: int, flash: bool, mib: float) -> None:
    shape = Shape(cells, 5, batch_tokens=batch, flash_attention=flash)
    assert mib * MIB < memory_size.compute_bytes(SMOLLM2, shape) < 1.15 * mib * MIB


def test_rearranged_weights_are_memory_of_the_process() -> None:
    arm = replace(SMOLLM2, repack_here="arm-dotprod")
    here, there = (memory_size.parts(facts, Shape(4096, 2)) for facts in (SMOLLM2, arm))
    assert here.weights == 0
    assert there.weights == 30_081_024
    assert there.total == here.total
    assert there.anonymous - here.anonymous == 30_081_024


def test_without_a_mapping_all_weights_are() -> None:
    parts = memory_size.parts(SMOLLM2, Shape(4096, 2, mmap=False))
    assert (parts.mapped, parts.weights) == (0, SMOLLM2.weight_bytes)


def test_unknown_tensor_types_count_as_the_whole_file() -> None:
    odd = replace(SMOLLM2, bytes_by_type={"type-99": 0, "F32": 1000}, weight_bytes=1000)
    assert memory_size.weight_bytes(odd) == SMOLLM2.file_bytes


def test_rows_that_fill_no_block_cannot_be_quantised() -> None:
    assert memory_size.fits_type(SMOLLM2, "q8_0")
    assert not memory_size.fits_type(replace(SMOLLM2, key_length=80), "q8_0")
