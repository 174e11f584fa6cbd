"""Deltas of random and mutated files come back byte by byte; decoders survive anything."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.delta_files import SMALL, FakeModel, FakeTensor, applied, made
from tests.fuzz import delta as fuzz
from tests.fuzz.__main__ import ENTRIES, PARTS

from stoker_ota.core import bsdiff, delta_index, gguf_layout
from stoker_ota.core.choice import CODECS, Choosing
from stoker_ota.errors import OtaError
from stoker_ota.services.delta_make import Making
from stoker_ota.values.delta import Codec, Content, Index, Op, Patch, Window

SEEDS = st.integers(0, 2**32)
HOW = st.builds(
    Making,
    window_bytes=st.sampled_from([4096, 5000, 16384]),
    choosing=st.builds(Choosing, st.sampled_from(list(CODECS.values())), st.sampled_from([1, 12])),
    plain=st.booleans(),
    max_ratio=st.just(9.0),
)
WIRE = st.one_of(st.integers(0, 5000), st.integers(0, 2**64 - 1), st.just(1 << 63 | 7))


def edited(data: bytes, draw: random.Random) -> bytes:
    """Inserted, removed, moved, doubled and changed in some places."""
    out = bytearray(data)
    for _ in range(draw.randrange(6)):
        at, n = draw.randrange(len(out) + 1), draw.randrange(3000)
        piece = bytes(out[at : at + n])
        match draw.randrange(5):
            case 0:
                out[at:at] = draw.randbytes(n)
            case 1:
                del out[at : at + n]
            case 2:
                out[at : at + n] = draw.randbytes(len(piece))
            case 3:
                out[draw.randrange(len(out) + 1) :][:0] = piece
                out += piece
            case 4:
                out[at : at + n] = bytes((b + draw.choice((0, 0, 0, 1))) & 255 for b in piece)
    return bytes(out)


@given(SEEDS, st.integers(0, 40_000), HOW)
@settings(max_examples=60, deadline=None)
def test_edited_files_come_back(seed: int, length: int, how: Making) -> None:
    draw = random.Random(seed)
    old = draw.randbytes(length)
    new = edited(old, draw)
    delta, report = made(old, new, how)
    assert applied(delta, old) == new
    assert report.delta_bytes == len(delta)


@given(st.binary(max_size=9000), st.binary(max_size=9000))
@settings(max_examples=60, deadline=None)
def test_any_two_files_come_back(old: bytes, new: bytes) -> None:
    delta, _ = made(old, new, replace(SMALL, plain=True))  # "GGUF" would be a broken model
    assert applied(delta, old) == new


def model(seed: int, shared: random.Random) -> FakeModel:
    draw = random.Random(seed)
    tensors = []
    for number in draw.sample(range(12), draw.randrange(12)):
        length = draw.choice([0, 32, 300, 4096, 9000])
        data = bytearray(random.Random(number).randbytes(length))
        for _ in range(length // 40):
            data[draw.randrange(length)] = (data[draw.randrange(length)] + 1) & 255
        kind, shape = draw.choice([2, 2, 8]), (length, 1)
        tensors.append(FakeTensor(f"t{number}", bytes(data), kind, shape))
    shared.shuffle(tensors)
    return FakeModel(tensors, {"name": "n" * draw.randrange(99), "list": ["x"] * draw.randrange(9)})


@given(SEEDS, SEEDS, HOW)
@settings(max_examples=60, deadline=None)
def test_models_come_back(one: int, other: int, how: Making) -> None:
    shared = random.Random(one)
    old, new = model(one, shared).file(), model(other, shared).file()
    delta, _ = made(old, new, how)
    assert applied(delta, old) == new


@given(st.binary(min_size=1, max_size=3000), SEEDS)
@settings(max_examples=60, deadline=None)
def test_subtracting_and_adding_cancel(new: bytes, seed: int) -> None:
    old = random.Random(seed).randbytes(len(new))
    everything = bsdiff.pack([(len(new), 0, 0)])
    patch = Patch(everything, bsdiff.subtract(new, old), b"")
    assert bsdiff.apply(patch, old, len(new)) == new
    assert bsdiff.apply_without_c(patch, old) == new


@given(SEEDS, st.integers(0, 200_000))
@settings(max_examples=30, deadline=None)
def test_the_way_without_c_gives_the_same(seed: int, length: int) -> None:
    draw = random.Random(seed)
    old = draw.randbytes(length)
    new = edited(old, draw)
    assert bsdiff.apply_without_c(bsdiff.search(old, new), old) == new


@given(st.lists(st.tuples(st.integers(-(2**62), 2**62), st.integers(), st.integers()).map(
    lambda t: tuple(max(-(2**62), min(2**62, n)) for n in t)), max_size=20))  # fmt: skip
def test_controls_are_read_as_they_were_written(controls: list[tuple[int, int, int]]) -> None:
    assert list(bsdiff.unpack(bsdiff.pack(controls))) == controls


SAMPLES = fuzz.samples()
VALID = [sample for samples in SAMPLES.values() for sample in samples] + [
    delta_index.encode(
        Index(Content(9, b"a" * 32), Content(4, b"b" * 32), 4096, (
            Window(Op.DATA, Codec.NONE, 0, 0, 0, 4, 0, 4, b"c" * 32, b"d" * 32),)),
    ),
]  # fmt: skip
MUTATED = st.tuples(
    st.sampled_from(VALID),
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=6),
    st.integers(0, 40),
).map(lambda t: _mutated(*t))
TRIPLES = st.lists(WIRE, max_size=12).map(lambda row: struct.pack(f"<{len(row)}Q", *row))


def _mutated(data: bytes, changes: list[tuple[int, int]], cut: int) -> bytes:
    out = bytearray(data)
    for at, value in changes:
        out[at % len(out)] = value
    return bytes(out[: len(out) - cut])


@pytest.mark.parametrize("name", fuzz.ENTRIES)
@given(st.one_of(st.binary(max_size=600), MUTATED, TRIPLES))
@settings(max_examples=80, deadline=None)
def test_no_bytes_upset_a_decoder(name: str, data: bytes) -> None:
    fuzz.ENTRIES[name](data)


@given(TRIPLES, st.integers(0, 3), st.integers(0, 3))
@settings(max_examples=80, deadline=None)
def test_no_counts_upset_the_reader_of_models(rest: bytes, tensors: int, keys: int) -> None:
    fuzz.gguf(gguf_layout.MAGIC + struct.pack("<IQQ", 3, tensors, keys) + rest)


def test_every_entry_of_the_fuzzer_begins_with_good_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A decoder that refuses them at its magic would make the changes worth nothing."""
    known = {name: good for part in PARTS for name, good in part.samples().items()}
    assert all(known.get(name) for name in ENTRIES)
    refused: list[str] = []
    seen = OtaError.__init__

    def refuse(self: OtaError, message: str, *words: Any, **more: Any) -> None:
        refused.append(message)
        seen(self, message, *words, **more)

    monkeypatch.setattr(OtaError, "__init__", refuse)
    for name in ("index", "whole", "gguf", "job"):
        for sample in SAMPLES[name]:
            refused.clear()
            fuzz.ENTRIES[name](sample)
            assert len(refused) <= (name == "index"), (name, refused)  # it is sealed again
