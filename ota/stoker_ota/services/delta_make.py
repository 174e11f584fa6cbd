"""Makes a delta: plans the windows, has a pool make them, writes payloads and index.

Memory is what the windows in flight take. A delta that saves too little is refused as soon as
that is certain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from stoker_ota.core import delta_index, gguf_layout, pairing, plan
from stoker_ota.core.choice import Choosing
from stoker_ota.core.landmarks import Landmarks
from stoker_ota.core.plan import WindowPlan
from stoker_ota.errors import BadGguf, DeltaTooLarge, InvalidRequest
from stoker_ota.ports.files import Progress, ReadAt, WriteAt, no_progress
from stoker_ota.ports.pool import Task, WindowPool
from stoker_ota.services.whole_file import content
from stoker_ota.units import KIB, MIB
from stoker_ota.values import delta as values
from stoker_ota.values.delta import Content, Index, Window
from stoker_ota.values.gguf import Layout
from stoker_ota.values.report import Made

DEFAULT_MAX_RATIO: Final = 0.6
SMALL_BYTES: Final = 4 * KIB
"""A delta of at most so much is never too large."""
_FIRST_HEAD_BYTES: Final = MIB


@dataclass(frozen=True, slots=True)
class Making:
    """How a delta is made. ``plain``: do not look for tensors."""

    window_bytes: int = values.DEFAULT_WINDOW_BYTES
    choosing: Choosing = Choosing()
    plain: bool = False
    max_ratio: float = DEFAULT_MAX_RATIO

    def __post_init__(self) -> None:
        if not values.MIN_WINDOW_BYTES <= self.window_bytes <= values.MAX_WINDOW_BYTES:
            raise InvalidRequest(
                f"cannot make a delta: windows of {self.window_bytes} bytes are not allowed",
                hint="4 KiB to 4 MiB",
            )


def make(
    old: ReadAt,
    new: ReadAt,
    out: WriteAt,
    pool: WindowPool,
    how: Making,
    progress: Progress = no_progress,
) -> Made:
    """Writes the delta to ``out``. DeltaTooLarge, BadGguf, InvalidRequest, storage errors."""
    source, target = content(old, "source", progress), content(new, "target", progress)
    plans = _Plans(old, new, how)
    if len(plans.all) > values.MAX_WINDOWS:
        raise InvalidRequest(
            f"cannot make a delta: {len(plans.all)} windows are more than {values.MAX_WINDOWS}",
            hint="a larger --window makes fewer",
        )
    base = delta_index.encoded_bytes(len(plans.all))
    limit = max(SMALL_BYTES, int(how.max_ratio * target.size))
    at = 0
    windows: list[Window] = []
    for made in pool.make(plans.tasks(), how.choosing):
        windows.append(made.placed(at))
        out.write_at(base + at, made.payload)
        at += len(made.payload)
        progress("make", windows[-1].dst_end, target.size)
        if base + at > limit:
            raise _too_large(base + at, windows[-1].dst_end, target, how.max_ratio)
    data = delta_index.encode(Index(source, target, how.window_bytes, tuple(windows)))
    out.write_at(0, data)
    out.sync()
    return _report(data, source, target, windows)


def _report(data: bytes, source: Content, target: Content, windows: list[Window]) -> Made:
    counts: Counter[str] = Counter()
    payload: Counter[str] = Counter()
    for window in windows:
        name = kind_name(window)
        counts[name] += 1
        payload[name] += window.payload_len
    total = len(data) + sum(payload.values())
    digest = delta_index.digest(data).hex()
    return Made(
        total, len(data), digest, source.size, target.size,
        dict(sorted(counts.items())), dict(sorted(payload.items())),
    )  # fmt: skip


def kind_name(window: Window) -> str:
    """Op and codec in words: ``copy``, ``bsdiff-zstd``, ``data-none``…"""
    op = window.op.name.lower()
    alone = window.op in (values.Op.COPY, values.Op.PLANES)
    return op if alone else f"{op}-{window.codec.name.lower()}"


def _too_large(delta_bytes: int, made: int, target: Content, max_ratio: float) -> DeltaTooLarge:
    return DeltaTooLarge(
        f"cannot make a delta worth publishing: {delta_bytes} bytes for the first {made} of "
        f"{target.size}, more than {max_ratio:.0%} of the whole",
        hint="publish the full artifact, or raise --max-ratio",
        details={"delta_bytes": delta_bytes, "made_bytes": made, "target_bytes": target.size},
    )


class _Plans:
    """All windows of the target, and where a search may look for those that pair with nothing."""

    def __init__(self, old: ReadAt, new: ReadAt, how: Making) -> None:
        self._old, self._new, self._how = old, new, how
        layouts = None if how.plain else read_layouts(old, new)
        self._headers = (0, 0)
        if layouts is None:
            self.all = list(plan.plain(0, new.size, how.window_bytes))
            return
        source, target = layouts
        self._headers = (source.data_off, target.data_off)
        begin = target.tensors[0].offset if target.tensors else target.size
        segments = pairing.segments(source, target, old.read_at, new.read_at)
        self.all = [
            *plan.plain(0, begin, how.window_bytes),
            *plan.aligned(segments, how.window_bytes, by_blocks=how.choosing.by_blocks),
        ]

    def tasks(self) -> Iterator[Task]:
        marks: dict[str, Landmarks] = {}
        for one in self.all:
            if one.pieces:
                yield Task(one)
            else:
                yield Task(one, *self._near(one, marks))

    def _near(self, one: WindowPlan, marks: dict[str, Landmarks]) -> tuple[int, int]:
        """The stretch of the source most like the window; (0, 0) where a search is hopeless."""
        most = values.SPAN_WINDOWS * self._how.window_bytes
        old_header, new_header = self._headers
        in_header = one.dst_off < new_header
        end = old_header if in_header else self._old.size
        if end <= most:
            return 0, end
        name = "header" if in_header else "file"
        if name not in marks:
            marks[name] = Landmarks(self._old.read_at, 0, end)
        found = marks[name]
        shift = found.shift(one.dst_off, self._new.read_at(one.dst_off, one.dst_len))
        if shift is None and new_header and not in_header:
            return 0, 0  # a tensor without a relative: nothing to find in weights
        if shift is None:
            shift = one.dst_off * (end - self._new.size) // max(self._new.size, 1)
        return found.stretch(shift, one.dst_off, one.dst_len, most)


def read_layouts(old: ReadAt, new: ReadAt) -> tuple[Layout, Layout] | None:
    """Both files' layouts if both are GGUF, else None. BadGguf names the broken file."""
    files = (("source", old), ("target", new))
    magic = gguf_layout.MAGIC
    if any(file.size < len(magic) or file.read_at(0, len(magic)) != magic for _, file in files):
        return None
    found = []
    for name, file in files:
        try:
            found.append(read_layout(file))
        except BadGguf as error:
            raise BadGguf(f"{error.message} (the {name})", hint=error.hint) from error
    return found[0], found[1]


def read_layout(file: ReadAt) -> Layout:
    """Reads as much of the begin as the header takes, at most ``MAX_HEADER_BYTES``."""
    length = _FIRST_HEAD_BYTES
    while True:
        length = min(length, file.size, gguf_layout.MAX_HEADER_BYTES)
        try:
            return gguf_layout.parse(file.read_at(0, length), file.size)
        except gguf_layout.MoreNeeded:
            if length == min(file.size, gguf_layout.MAX_HEADER_BYTES):
                raise BadGguf("cannot read the GGUF file: its header does not end") from None
            length *= 4
