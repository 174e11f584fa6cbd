"""Entries for a fuzzer, one a decoder: ``name(data: bytes) -> None``.

Each may raise nothing: a typed error is a decoder doing its work, anything else is a bug. They
run under atheris (``atheris.Setup(sys.argv, delta.index)``) and, with hypothesis, in the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.fakes.delta_files import FakeModel, FakeTensor, MemoryFile, made

from stoker_ota.core import (
    apply_talk,
    blocks,
    bsdiff,
    delta_index,
    gguf_layout,
    streams,
    window,
)
from stoker_ota.core import planes as plane_payloads
from stoker_ota.errors import BadDelta, OtaError
from stoker_ota.services import delta_apply
from stoker_ota.values.delta import Codec, Op, Window

_SOURCE: Final = bytes(range(256)) * 64
_NEW_BYTES: Final = 4096
_MOST: Final = 1 << 16


def index(data: bytes) -> None:
    """The index as it comes, and again under a right hash and length."""
    for body in (data, _sealed(data)):
        try:
            found = delta_index.decode(body)
        except OtaError:
            continue
        assert delta_index.encode(found) == body
        assert sum(entry.dst_len for entry in found.windows) == found.target.size
        assert all(entry.src_off + entry.src_len <= found.source.size for entry in found.windows)


def payload(data: bytes) -> None:
    """A bsdiff payload of either codec; what is accepted is exactly as long as promised."""
    for codec in (Codec.BZ2, Codec.ZSTD):
        try:
            patch = bsdiff.decode(data, codec, src_len=len(_SOURCE), new_len=_NEW_BYTES)
        except OtaError:
            continue
        assert len(bsdiff.apply(patch, _SOURCE, _NEW_BYTES)) == _NEW_BYTES


def controls(data: bytes) -> None:
    """The control stream, the diff and the extra: what the compression would hide."""
    codec = Codec.ZSTD
    parts = [streams.compress(codec, part) for part in (data, bytes(2048), bytes(2048))]
    lengths = (len(parts[0]), len(parts[1]), _NEW_BYTES)
    head = bsdiff.MAGICS[codec] + b"".join(n.to_bytes(8, "little") for n in lengths)
    payload(head + b"".join(parts))


def stream(data: bytes) -> None:
    """Compressed streams never give more than allowed."""
    for codec in Codec:
        try:
            assert len(streams.decompress(codec, data, at_most=_MOST)) <= _MOST
        except OtaError:
            continue


def one_window(data: bytes) -> None:
    """A window whose payload has the right hash and anything in it."""
    right = delta_index.digest(data)
    for op, codec in ((Op.BSDIFF, Codec.BZ2), (Op.BSDIFF, Codec.ZSTD), (Op.DATA, Codec.ZSTD)):
        source = _SOURCE if op == Op.BSDIFF else b""
        entry = Window(op, codec, 0, len(source), 0, _NEW_BYTES, 0, len(data), right, right)
        try:
            made = window.apply(entry, source, data)
        except OtaError:
            continue
        assert delta_index.digest(made) == right


def planes(data: bytes) -> None:
    """A payload of planes under every kind of block, and as the streams of one."""
    source = _SOURCE[:_NEW_BYTES]
    for kind in blocks.LAYOUTS:
        count = len(blocks.sizes(kind, len(source)))
        for body in (data, plane_payloads.MAGIC + data[: 5 * count].ljust(5 * count, b"\0") + data):
            try:
                assert len(plane_payloads.decode(kind, body, source)) == len(source)
            except OtaError:
                continue


def whole(data: bytes) -> None:
    """A delta file as it comes."""
    try:
        delta = delta_apply.open_delta(MemoryFile(data))
        out = MemoryFile()
        delta_apply.write(delta, MemoryFile(_SOURCE), out)
    except OtaError:
        return
    assert out.size == delta.index.target.size


def gguf(data: bytes) -> None:
    """The layout of a GGUF file: contiguous stretches inside the file."""
    try:
        layout = gguf_layout.parse(data, len(data))
    except (OtaError, gguf_layout.MoreNeeded):
        return
    at = layout.data_off
    for tensor in layout.tensors:
        assert tensor.offset == at
        at = tensor.end
    assert at == layout.size or not layout.tensors


def _sealed(data: bytes) -> bytes:
    body = data[: len(data) - (len(data) - delta_index.HEADER_BYTES) % delta_index.ENTRY_BYTES]
    return body + delta_index.digest(body)


def job(data: bytes) -> None:
    """What the process that applies a delta is told."""
    try:
        found = apply_talk.parse_job(data)
    except OtaError:
        return
    assert apply_talk.parse_job(apply_talk.job_line(found)) == found


def said(data: bytes) -> None:
    """What that process says back, when it was taken over; in one piece and byte by byte."""
    whole, pieces = apply_talk.Said(), apply_talk.Said()
    for heard, parts in ((whole, [data]), (pieces, [data[i : i + 1] for i in range(len(data))])):
        try:
            for part in parts:
                for step in heard.hear(part):
                    assert 0 <= step.done <= step.total
        except OtaError:
            return
    if whole.error is not None:
        assert whole.error.message.isprintable()
    assert (whole.applied, whole.error is None) == (pieces.applied, pieces.error is None)


def samples() -> dict[str, list[bytes]]:
    """Good ones, for changing: without them every input ends at the first magic."""
    new = bytes(byte ^ (at % 97 == 0) for at, byte in enumerate(_SOURCE[:_NEW_BYTES]))
    patch = bsdiff.search(_SOURCE, new)
    patches = [bsdiff.encode(patch, len(new), c, zstd_level=3) for c in (Codec.BZ2, Codec.ZSTD)]
    model = FakeModel([FakeTensor("a", b"w" * 64), FakeTensor("b", b"v" * 32)], {"k": ["s", "t"]})
    steps = (apply_talk.step_line(apply_talk.Step("apply", n, 9)) for n in range(9))
    delta = made(_SOURCE, new * 3 + b"more" * 90)[0]
    described = delta_apply.open_delta(MemoryFile(delta)).index
    return {
        "index": [delta_index.encode(described)],
        "payload": patches,
        "controls": [bsdiff.pack([(4000, 96, 7), (0, 0, -7)])],
        "stream": [streams.compress(codec, new) for codec in Codec],
        "one_window": [*patches, streams.compress(Codec.ZSTD, new)],
        "planes": [
            plane_payloads.encode(kind, _SOURCE[:_NEW_BYTES], new, [Codec.BZ2], zstd_level=3)
            for kind in blocks.LAYOUTS
        ],
        "whole": [delta],
        "gguf": [model.file()],
        "job": [apply_talk.job_line(apply_talk.Job(b"i" * 32, 4096))],
        "said": [b"".join(steps) + apply_talk.error_line(BadDelta("cannot apply the delta: no"))],
    }


ENTRIES: Final[dict[str, Callable[[bytes], None]]] = {
    entry.__name__: entry
    for entry in (index, payload, controls, stream, one_window, planes, whole, gguf, job, said)
}
