"""Charts of a report as SVG: a heat map of waits, lines and bars over one axis of time. Pure.

All of it is text for one page: no script, no file beside it, colours by CSS variables, so that
the page is right in light and in dark.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH: Final = 960
LEFT: Final = 64
RIGHT: Final = 12
ROW: Final = 13
STRIP: Final = 96
HOURS_S: Final = (300, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800)
_TICKS: Final = 9


@dataclass(frozen=True, slots=True)
class Span:
    """The axis of time: seconds since 1970, and the width of a column."""

    start: float
    end: float
    column_s: float

    def x(self, at: float) -> float:
        part = (at - self.start) / (self.end - self.start)
        return LEFT + (WIDTH - LEFT - RIGHT) * min(max(part, 0.0), 1.0)

    @property
    def column(self) -> float:
        return (WIDTH - LEFT - RIGHT) * self.column_s / (self.end - self.start)

    def ticks(self) -> list[float]:
        """Full hours (or what fits better), by the clock on the wall."""
        step = next((s for s in HOURS_S if (self.end - self.start) / s <= _TICKS), HOURS_S[-1])
        offset = time.localtime(self.start).tm_gmtoff
        first = math.ceil((self.start + offset) / step) * step - offset
        return [first + step * n for n in range(_TICKS + 1) if first + step * n <= self.end]

    def label(self, at: float) -> str:
        days = self.end - self.start > 2 * 86_400
        return time.strftime("%d %b" if days else "%H:%M", time.localtime(at))


@dataclass(frozen=True, slots=True)
class Cell:
    at: float
    counts: Sequence[int]


@dataclass(frozen=True, slots=True)
class Line:
    """Values over time; a gap in time breaks the line. ``look`` is its CSS class."""

    points: Sequence[tuple[float, float]]
    look: str
    name: str = ""


def heat_map(
    span: Span, cells: Sequence[Cell], bounds_s: Sequence[float], marks: Sequence[Line]
) -> str:
    """Columns of time, rows of waits, the darker the more of a column's tokens waited so long."""
    used = [row for cell in cells for row, count in enumerate(cell.counts) if count]
    low, high = max(0, min(used, default=0) - 1), min(len(bounds_s), max(used, default=4) + 1)
    rows = high - low + 1
    height = rows * ROW

    def y(row: float) -> float:
        return height - (row - low + 1) * ROW

    parts = []
    for cell in cells:
        total = sum(cell.counts)
        for row, count in enumerate(cell.counts):
            if count:
                title = _cell_title(span, cell.at, row, count, count / total, bounds_s)
                parts.append(
                    f'<rect x="{span.x(cell.at):.1f}" y="{y(row):.1f}" class="h"'
                    f' width="{span.column + 0.3:.1f}" height="{ROW}"'
                    f' fill-opacity="{0.12 + 0.88 * (count / total) ** 0.5:.2f}">'
                    f"<title>{escape(title)}</title></rect>"
                )
    parts += [
        f'<text x="{LEFT - 6}" y="{y(row) + 4:.1f}" class="t e">{_wait(bounds_s[row])}</text>'
        for row in range(low, min(high, len(bounds_s) - 1) + 1, 2)
    ]
    parts += [_polyline(span, line, lambda wait: y(_row(wait, bounds_s)), 1.5) for line in marks]
    return _figure(span, height, parts)


def strip(
    span: Span, lines: Sequence[Line], unit: str, *, bars: bool = False, floor: float | None = None
) -> str:
    """Lines (or bars) over time with an axis of their own; ``floor``: what the axis must show."""
    values = [value for line in lines for _, value in line.points]
    low = min([*values, *([] if floor is None else [floor])], default=0.0)
    high = max(values, default=1.0)
    low, high = _round_out(low, high)

    def y(value: float) -> float:
        return STRIP - (value - low) / (high - low) * STRIP

    parts = []
    for value in (low, (low + high) / 2, high):
        at = f"{y(value):.1f}"
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}" class="g"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at}" dy="4" class="t e">{value:g} {unit}</text>')
    for line in lines:
        parts.append(_bars(span, line, y) if bars else _polyline(span, line, y, 1.5))
    return _figure(span, STRIP, parts)


def marks(span: Span, events: Iterable[tuple[float, str, str]]) -> str:
    """One tick for each event, by kind."""
    parts = []
    for at, kind, text in events:
        title = f"{time.strftime('%d %b %H:%M', time.localtime(at))} {text}"
        x = f"{span.x(at):.1f}"
        parts.append(
            f'<line x1="{x}" x2="{x}" y1="0" y2="16" class="m k-{escape(kind)}">'
            f"<title>{escape(title)}</title></line>"
        )
    return _figure(span, 16, parts)


def _figure(span: Span, height: float, parts: Sequence[str]) -> str:
    ticks = ""
    for at in span.ticks():
        x = f"{span.x(at):.1f}"
        ticks += f'<line x1="{x}" x2="{x}" y1="0" y2="{height:.0f}" class="g"/>'
        ticks += f'<text x="{x}" y="{height + 18:.0f}" class="t {_side(span, at)}">'
        ticks += f"{span.label(at)}</text>"
    return f'<svg viewBox="0 -8 {WIDTH} {height + 32:.0f}" role="img">{ticks}{"".join(parts)}</svg>'


def _side(span: Span, at: float) -> str:
    """The last label ends where the axis does."""
    return "e" if span.x(at) > WIDTH - RIGHT - 20 else "m"


def _polyline(span: Span, line: Line, y: Callable[[float], float], width: float) -> str:
    """A hole of more than a column and a half ends one piece and begins another."""
    pieces: list[list[str]] = []
    last = -math.inf
    for at, value in line.points:
        if at - last > 1.5 * span.column_s:
            pieces.append([])
        middle = span.x(at + span.column_s / 2)
        pieces[-1].append(f"{middle:.1f},{y(value):.1f}")
        last = at
    out = ""
    for piece in pieces:
        if len(piece) == 1:
            x, _, y_text = piece[0].partition(",")
            out += f'<circle cx="{x}" cy="{y_text}" r="1.6" class="{line.look} dot"/>'
        else:
            out += (
                f'<polyline points="{" ".join(piece)}" class="{line.look}" stroke-width="{width}"/>'
            )
    return out


def _bars(span: Span, line: Line, y: Callable[[float], float]) -> str:
    width = max(span.column - 0.6, 0.6)
    return "".join(
        f'<rect x="{span.x(at):.1f}" y="{y(value):.1f}" width="{width:.1f}"'
        f' height="{max(STRIP - y(value), 0.0):.1f}" class="{line.look} bar"/>'
        for at, value in line.points
    )


def _row(wait_s: float, bounds_s: Sequence[float]) -> float:
    """Where in the rows a wait lies: rows are a factor of two apart."""
    return min(max(math.log2(max(wait_s, 1e-9) / bounds_s[0]), -1.0), float(len(bounds_s)))


def _round_out(low: float, high: float) -> tuple[float, float]:
    """Limits of an axis at round numbers."""
    room = max(high - low, abs(high) * 0.05, 1e-6)
    step = 10 ** math.floor(math.log10(room))
    step = next(s for s in (step / 2, step, 2 * step) if room / s <= 10)
    return math.floor(low / step) * step, math.ceil(high / step + 1e-9) * step or step


def _wait(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.0f} s"


def _cell_title(
    span: Span, at: float, row: int, count: int, share: float, bounds_s: Sequence[float]
) -> str:
    upper = f"≤ {_wait(bounds_s[row])}" if row < len(bounds_s) else f"> {_wait(bounds_s[-1])}"
    when = time.strftime("%d %b %H:%M", time.localtime(at))
    return f"{when}, {upper}: {count} tokens, {share:.0%} of {span.column_s / 60:.0f} min"
