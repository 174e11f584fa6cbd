"""Chunks, pages, roots, bitmaps and the token bucket, of any object and of anything else."""

from __future__ import annotations

import hashlib
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker_ota.core import chunks, have, pace
from stoker_ota.errors import BadDocument, ChunkHash, OtaError
from stoker_ota.values.chunks import (
    DEFAULT_CHUNK_BYTES,
    MAX_CHUNK_BYTES,
    MAX_CHUNKS,
    MIN_CHUNK_BYTES,
    PAGE_DIGESTS,
    ChunkIndex,
    Chunks,
)

ROOT = "ab" * 32


def _object(seed: int, total: int, size: int) -> tuple[bytes, ChunkIndex]:
    data = random.Random(seed).randbytes(total)
    pieces = [data[at : at + size] for at in range(0, total, size)]
    return data, chunks.index_of(pieces, total, size)


@given(st.integers(0, 2**32), st.integers(0, 9000), st.integers(1024, 4000))
def test_an_object_s_chunks_cover_it_and_its_pages_and_root_lead_back(
    seed: int, total: int, size: int
) -> None:
    data, index = _object(seed, total, size)
    wanted = chunks.of_index(index)
    spans = [(index.offset(n), index.length(n)) for n in range(index.count)]
    assert b"".join(data[at : at + n] for at, n in spans) == data
    assert all(chunks.right(index, n, data[at : at + k]) for n, (at, k) in enumerate(spans))
    root = chunks.root(index)
    assert len(root) == chunks.root_bytes(total, size)
    pages = chunks.pages(index)
    names = [hashlib.sha256(page).hexdigest() for page in pages]
    assert list(chunks.parse_root(root, wanted, total)) == names
    assert chunks.of_pages(b"".join(pages), wanted, total) == index


def test_a_page_is_as_large_as_a_chunk_and_a_full_root_is_one_message() -> None:
    assert chunks.PAGE_BYTES == DEFAULT_CHUNK_BYTES
    most = MAX_CHUNKS * DEFAULT_CHUNK_BYTES
    assert chunks.root_bytes(most, DEFAULT_CHUNK_BYTES) <= MAX_CHUNK_BYTES
    index = ChunkIndex(PAGE_DIGESTS * 1024 + 1, 1024, bytes((PAGE_DIGESTS + 1) * 32))
    assert [len(page) for page in chunks.pages(index)] == [PAGE_DIGESTS * 32, 32]


@given(st.integers(0, 2**32), st.integers(1, 9000), st.data())
def test_one_changed_byte_of_root_pages_or_chunk_is_refused(
    seed: int, total: int, data: st.DataObject
) -> None:
    content, index = _object(seed, total, 1024)
    wanted = chunks.of_index(index)

    def changed(blob: bytes) -> bytes:
        at = data.draw(st.integers(0, len(blob) - 1))
        return blob[:at] + bytes([blob[at] ^ 1]) + blob[at + 1 :]

    with pytest.raises(ChunkHash):
        chunks.parse_root(changed(chunks.root(index)), wanted, total)
    with pytest.raises(ChunkHash):
        chunks.of_pages(changed(index.digests), wanted, total)
    assert not chunks.right(index, 0, changed(content[:1024]))
    assert not chunks.right(index, 0, content[:1024] + b"x")


@given(st.binary(max_size=300), st.integers(0, 1 << 41), st.integers(0, 1 << 18))
def test_whatever_comes_as_root_or_pages_is_refused_with_a_reason(
    blob: bytes, total: int, size: int
) -> None:
    for name in (ROOT, hashlib.sha256(blob).hexdigest()):
        for read in (chunks.parse_root, chunks.of_pages):
            with pytest.raises(OtaError):
                read(blob, Chunks(size, name), total + 1)


def test_a_root_of_another_object_is_refused_although_its_hash_is_right() -> None:
    _, index = _object(1, 5000, 1024)
    wanted = chunks.of_index(index)
    with pytest.raises(BadDocument):
        chunks.parse_root(chunks.root(index), wanted, 4999)
    with pytest.raises(BadDocument):
        chunks.parse_root(chunks.root(index), Chunks(2048, wanted.root), 5000)
    for size in (MIN_CHUNK_BYTES - 1, MAX_CHUNK_BYTES + 1):
        with pytest.raises(BadDocument):
            chunks.count(5000, size)
    with pytest.raises(BadDocument):
        chunks.count(MAX_CHUNKS * 1024 + 1, 1024)


@given(st.sets(st.integers(0, 60)), st.integers(1, 9))
def test_runs_are_the_same_numbers_in_neighbours(numbers: set[int], most: int) -> None:
    found = list(chunks.runs(sorted(numbers), most))
    assert [n for first, k in found for n in range(first, first + k)] == sorted(numbers)
    assert all(1 <= k <= most for _, k in found)
    for (first, k), (after, _) in pairwise(found):
        assert after > first + k or k == most  # neighbours are asked for together


@given(st.integers(0, 70), st.data())
def test_a_bitmap_holds_what_was_added_and_comes_back(count: int, data: st.DataObject) -> None:
    picked = data.draw(st.sets(st.integers(0, count - 1))) if count else set()
    bitmap = have.Have(ROOT, count)
    for number in picked:
        bitmap.add(number)
        bitmap.add(number)
    back = have.decode(bitmap.encode(), ROOT, count)
    assert list(back.missing()) == sorted(set(range(count)) - picked)
    assert back.held == len(picked)
    assert back.complete == (len(picked) == count)
    assert all((n in back) == (n in picked) for n in range(count))
    with pytest.raises(IndexError):
        bitmap.add(count)


@given(st.binary(max_size=80), st.integers(0, 40))
def test_a_bitmap_of_something_else_or_damaged_is_empty(blob: bytes, count: int) -> None:
    full = have.Have("cd" * 32, count, bytes(-(-count // 8)))
    for data in (blob, full.encode(), have.Have(ROOT, count).encode() + b"\0"):
        found = have.decode(data, ROOT, count)
        assert (found.held, found.count) == (0, count)
    if count % 8:
        beyond = have.Have(ROOT, count).encode()[:-1] + b"\xff"
        assert have.decode(beyond, ROOT, count).held == 0


@given(
    st.integers(1, 10**6),
    st.lists(st.tuples(st.integers(0, 5000), st.floats(0, 3)), min_size=1, max_size=60),
)
def test_the_bucket_never_lets_more_through_than_rate_and_one_burst(
    rate: int, steps: list[tuple[int, float]]
) -> None:
    now = 0.0
    bucket = pace.begin(rate, now, least_burst=1000)
    taken = 0
    for count, passed in steps:
        now += passed
        if pace.wait_s(bucket, now) == 0:
            bucket = pace.take(bucket, count, now)
            taken += count
        assert taken <= rate * now + bucket.burst + 5000 + 1
    now += pace.wait_s(bucket, now) + 1e-6
    assert pace.wait_s(bucket, now) == 0


def test_without_a_rate_nothing_waits() -> None:
    bucket = pace.take(pace.begin(0, 5.0, least_burst=1), 1 << 40, 5.0)
    assert pace.wait_s(bucket, 5.0) == 0
