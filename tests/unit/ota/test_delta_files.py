"""Deltas of any files: made, applied, interrupted, damaged, and given the wrong source."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.fakes.delta_files import SMALL, MemoryFile, applied, made

from stoker_ota.core import delta_index
from stoker_ota.core.choice import CODECS, Choosing
from stoker_ota.drivers import pool as pool_module
from stoker_ota.drivers.pool import InlinePool, ProcessPool
from stoker_ota.errors import (
    BadDelta,
    ChunkHash,
    DeltaTooLarge,
    Dependency,
    InvalidRequest,
    OtaError,
    ResultHash,
    SourceMismatch,
)
from stoker_ota.services import delta_apply, delta_make
from stoker_ota.services.delta_make import Making
from stoker_ota.values.delta import Codec, Op

DRAW = random.Random(9)
OLD = DRAW.randbytes(20_000)
NEW = OLD[:6_000] + b"inserted" * 9 + OLD[6_000:15_000] + DRAW.randbytes(700) + OLD[16_000:]


@pytest.mark.parametrize(
    ("old", "new"),
    [(OLD, OLD), (OLD, NEW), (NEW, OLD), (b"", b""), (OLD, b""), (b"", OLD), (b"x", b"y"),
     (OLD, OLD[:100]), (OLD[:100], OLD), (OLD, bytes(9000)), (bytes(9000), bytes(9001)),
     (OLD, OLD[::-1]), (OLD, OLD + OLD), (OLD[:4096], OLD[:4095]), (OLD[:4096], OLD[:4097])],
)  # fmt: skip
def test_every_pair_of_files_is_right(old: bytes, new: bytes) -> None:
    delta, report = made(old, new)
    assert applied(delta, old) == new
    assert report.delta_bytes == len(delta)
    opened = delta_apply.open_delta(MemoryFile(delta), index_sha256=None)
    assert opened.index_sha256.hex() == report.index_sha256


def test_what_is_the_same_is_copied() -> None:
    _, report = made(OLD, OLD)
    assert report.windows == {"copy": 5}
    assert report.delta_bytes == delta_index.encoded_bytes(5)


def test_an_insertion_costs_little() -> None:
    _, report = made(OLD, NEW)
    assert report.delta_bytes < 3_000


@pytest.mark.parametrize("codec", ["zstd", "bz2"])
def test_only_the_wanted_codec_is_used(codec: str) -> None:
    delta, _ = made(OLD, NEW, Making(4096, Choosing(CODECS[codec]), max_ratio=2))
    used = {window.codec for window in delta_apply.open_delta(MemoryFile(delta)).index.windows}
    assert used <= {Codec.NONE, Codec[codec.upper()]}
    assert applied(delta, OLD) == NEW


def test_the_smallest_form_of_each_window_is_kept() -> None:
    sizes = [
        len(made(OLD, NEW, Making(4096, Choosing(CODECS[name]), max_ratio=2))[0])
        for name in ("zstd", "bz2", "smallest")
    ]
    assert sizes[2] <= min(sizes)


def test_the_same_inputs_give_the_same_bytes_on_any_number_of_processes(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_bytes(OLD)
    new.write_bytes(NEW)
    out = MemoryFile()
    pool = ProcessPool(old, new, 2)
    delta_make.make(MemoryFile(OLD), MemoryFile(NEW), out, pool, SMALL)
    assert bytes(out.data) == made(OLD, NEW)[0] == made(OLD, NEW)[0]


def test_a_machine_that_refuses_semaphores_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as an output that cannot be written: /dev/shm of a bare chroot belongs to root."""

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(pool_module, "ProcessPoolExecutor", refused)
    with pytest.raises(Dependency, match="several processes: Permission denied") as caught:
        list(ProcessPool(Path("old"), Path("new"), 2).make([], SMALL.choosing))
    assert "--jobs 1" in caught.value.hint


def test_a_delta_that_saves_too_little_is_refused() -> None:
    with pytest.raises(DeltaTooLarge, match="more than 60%") as caught:
        made(OLD, DRAW.randbytes(20_000), Making(window_bytes=4096))
    assert caught.value.details["target_bytes"] == 20_000


def test_a_small_file_is_never_too_large() -> None:
    delta, _ = made(b"old", b"brand new", Making())
    assert applied(delta, b"old") == b"brand new"


@pytest.mark.parametrize("window_bytes", [0, 4095, 4 * 2**20 + 1])
def test_window_sizes_have_limits(window_bytes: int) -> None:
    with pytest.raises(InvalidRequest):
        Making(window_bytes=window_bytes)
    with pytest.raises(InvalidRequest):
        Choosing(zstd_level=20)


def test_applying_goes_on_at_any_window() -> None:
    delta = delta_apply.open_delta(MemoryFile(made(OLD, NEW)[0]))
    source = MemoryFile(OLD)
    for stopped in range(len(delta.index.windows) + 1):
        part = MemoryFile(bytes(len(NEW)))
        for done in list(delta_apply.windows(delta, source))[:stopped]:
            part.write_at(done.dst_off, done.data)
        first = delta_apply.intact(delta.index, part)
        assert first == stopped
        assert delta_apply.intact(delta.index, part, at_most=1) == min(stopped, 1)
        delta_apply.write(delta, source, part, first=first)
        assert bytes(part.data) == NEW
        assert part.synced == 1


def test_a_part_that_was_torn_is_made_again_from_there() -> None:
    delta = delta_apply.open_delta(MemoryFile(made(OLD, NEW)[0]))
    part = MemoryFile(NEW)
    part.data[9000] ^= 1
    assert delta_apply.intact(delta.index, part) == 2
    assert delta_apply.intact(delta.index, MemoryFile(NEW[:5000])) == 1


def test_the_wrong_source_is_refused_before_and_while_it_is_used() -> None:
    raw = made(OLD, NEW)[0]
    delta = delta_apply.open_delta(MemoryFile(raw))
    other = bytearray(OLD)
    other[3] ^= 1
    for wrong in (bytes(other), OLD[:-1], OLD + b"x", b""):
        with pytest.raises(SourceMismatch):
            delta_apply.check_source(delta.index, MemoryFile(wrong))
    delta_apply.check_source(delta.index, MemoryFile(OLD))
    with pytest.raises(ResultHash):
        applied(raw, bytes(other))


def test_an_index_that_the_manifest_does_not_name_is_refused() -> None:
    raw = made(OLD, NEW)[0]
    with pytest.raises(ChunkHash):
        delta_apply.open_delta(MemoryFile(raw), index_sha256=bytes(32))


def test_no_changed_byte_gives_a_wrong_file() -> None:
    old = DRAW.randbytes(9_000)
    new = old[:3_000] + b"some text that is new, some text" * 20 + DRAW.randbytes(60) + old[3_500:]
    raw = made(old, new)[0]
    ops = {window.op for window in delta_apply.open_delta(MemoryFile(raw)).index.windows}
    assert Op.BSDIFF in ops
    for at in range(len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= 1 << (at % 8)
        with pytest.raises((BadDelta, ChunkHash)):
            applied(bytes(damaged), old)


def test_no_cut_or_longer_delta_is_taken() -> None:
    raw = made(OLD, NEW)[0]
    for length in (*range(0, len(raw), 7), len(raw) - 1):
        with pytest.raises(OtaError):
            applied(raw[:length], OLD)
    with pytest.raises(BadDelta):
        applied(raw + b"\0", OLD)


def test_damage_is_found_without_the_source() -> None:
    raw = bytearray(made(OLD, NEW)[0])
    delta_apply.check_payloads(delta_apply.open_delta(MemoryFile(bytes(raw))))
    raw[-1] ^= 1
    with pytest.raises(ChunkHash, match="payload of window"):
        delta_apply.check_payloads(delta_apply.open_delta(MemoryFile(bytes(raw))))


def test_progress_ends_with_everything_done() -> None:
    seen: dict[str, tuple[int, int]] = {}

    def watch(phase: str, done: int, total: int) -> None:
        assert done >= seen.get(phase, (0, 0))[0]
        seen[phase] = (done, total)

    out, source, target = MemoryFile(), MemoryFile(OLD), MemoryFile(NEW)
    delta_make.make(source, target, out, InlinePool(source, target), SMALL, watch)
    delta = delta_apply.open_delta(out)
    delta_apply.check_payloads(delta, watch)
    delta_apply.write(delta, source, MemoryFile(), progress=watch)
    assert set(seen) == {"source", "target", "make", "payloads", "apply"}
    assert all(done == total for done, total in seen.values())
