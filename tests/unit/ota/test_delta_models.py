"""Deltas of GGUF files: tensors are found again wherever they went."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.fakes.delta_files import SMALL, FakeModel, FakeTensor, MemoryFile, applied, made

from stoker_ota.core import gguf_layout, pairing
from stoker_ota.core.plan import WindowPlan, aligned
from stoker_ota.errors import BadGguf, DeltaTooLarge
from stoker_ota.services.delta_make import Making

DRAW = random.Random(6)
KEYS = {"general.name": "model", "tokens": [f"token{n}" for n in range(500)], "template": "hi"}


def weights(length: int = 20_000) -> bytes:
    return DRAW.randbytes(length)


def tuned(data: bytes, share: float = 0.1) -> bytes:
    """Dense and small: no long run stays, so only an aligned window can save anything."""
    return bytes((b + (DRAW.random() < share)) & 255 for b in data)


OLD = FakeModel([FakeTensor(f"blk.{n}", weights(), 2, (20_000,)) for n in range(4)], KEYS)
FILE = OLD.file()


def ratio(new: bytes, how: Making = SMALL, old: bytes = FILE) -> float:
    """Delta ÷ target, after it was applied and compared."""
    delta, report = made(old, new, how)
    assert applied(delta, old) == new
    return report.ratio


def test_a_dense_fine_tune_is_small() -> None:
    new = replace(OLD, tensors=[replace(t, data=tuned(t.data)) for t in OLD.tensors]).file()
    assert ratio(new) < 0.2


def test_changed_metadata_costs_next_to_nothing_though_every_offset_moves() -> None:
    new = replace(OLD, keys={**KEYS, "template": "a longer template " * 40}).file()
    assert ratio(new) < 0.05


def test_moved_tensors_are_found_by_name() -> None:
    order = [3, 1, 0, 2]
    moved = [replace(OLD.tensors[n], data=tuned(OLD.tensors[n].data)) for n in order]
    assert ratio(replace(OLD, tensors=moved).file()) < 0.2


def test_a_renamed_tensor_is_found_by_its_bytes() -> None:
    renamed = [
        replace(t, name=f"other.{n}", data=tuned(t.data))
        for n, t in enumerate(reversed(OLD.tensors))
    ]
    assert ratio(replace(OLD, tensors=renamed).file()) < 0.2


def test_a_tensor_that_was_untied_is_taken_from_its_twin() -> None:
    twin = FakeTensor("output", tuned(OLD.tensors[0].data), 2, (20_000,))
    assert ratio(replace(OLD, tensors=[*OLD.tensors, twin]).file()) < 0.1


def test_a_removed_tensor_costs_nothing() -> None:
    assert ratio(replace(OLD, tensors=OLD.tensors[1:]).file()) < 0.05


def test_retyped_tensors_do_not_pair_and_a_useless_delta_is_refused() -> None:
    retyped = [replace(t, kind=8, data=weights()) for t in OLD.tensors]
    new = replace(OLD, tensors=retyped).file()
    assert 0.9 < ratio(new) < 1.1
    with pytest.raises(DeltaTooLarge, match="more than 60%"):
        made(FILE, new, Making(window_bytes=4096))


def test_a_tensor_that_grew_is_right() -> None:
    grown = [replace(OLD.tensors[0], data=OLD.tensors[0].data + weights(500)), *OLD.tensors[1:]]
    assert ratio(replace(OLD, tensors=grown).file()) < 0.1


def test_the_parts_of_a_split_model_are_found_in_the_whole_and_the_other_way() -> None:
    first = replace(OLD, tensors=OLD.tensors[:2], keys={**KEYS, "split.no": 0}).file()
    second = replace(OLD, tensors=OLD.tensors[2:], keys={"split.no": 1}).file()
    assert ratio(first) < 0.1
    assert ratio(second) < 0.1
    assert 0.4 < ratio(FILE, old=first) < 0.6  # the other half was never there


def test_a_broken_model_is_refused_unless_it_is_taken_as_bytes() -> None:
    broken = FILE[:4] + b"\x09" + FILE[5:]
    with pytest.raises(BadGguf, match="target"):
        made(FILE, broken)
    with pytest.raises(BadGguf, match="source"):
        made(broken, FILE)
    assert ratio(broken, replace(SMALL, plain=True)) < 0.05


def test_a_model_without_tensors_is_right() -> None:
    assert ratio(FakeModel((), KEYS).file()) < 0.2
    assert ratio(FILE, old=FakeModel((), {}).file()) > 0.9


def test_windows_are_contiguous_and_within_limits_whatever_the_order() -> None:
    draw = random.Random(3)
    for _ in range(50):
        tensors = [
            FakeTensor(f"t{n}", draw.randbytes(draw.choice([0, 5, 64, 3000, 9000])), 2, (n,))
            for n in range(30)
        ]
        old = FakeModel(draw.sample(tensors, 25)).file()
        new = FakeModel(draw.sample(tensors, 25)).file()
        source = gguf_layout.parse(old, len(old))
        target = gguf_layout.parse(new, len(new))
        found = pairing.segments(source, target, MemoryFile(old).read_at, MemoryFile(new).read_at)
        plans = list(aligned(found, 4096))
        judge(plans, target.data_off, len(new))


def judge(plans: list[WindowPlan], begin: int, end: int) -> None:
    at = begin
    for plan in plans:
        assert plan.dst_off == at
        assert 0 < plan.dst_len <= 4096
        assert plan.source_range[1] <= 2 * 4096
        if plan.pieces:
            assert sum(piece.length for piece in plan.pieces) == plan.dst_len
            assert sum(d + e for d, e, _ in plan.controls()) == plan.dst_len
        at += plan.dst_len
    assert at == end
