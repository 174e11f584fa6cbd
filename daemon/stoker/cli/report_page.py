"""The device's past as one HTML page: numbers, heat maps, heat, events. Pure.

Everything is in the page (no script, no font, no picture from elsewhere), so that it can be mailed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from itertools import zip_longest
from typing import Any, Final

from stoker.cli import report_charts as charts
from stoker.cli.report_charts import Cell, Line, Span
from stoker_client.history import BOUNDS_S, Answers, Past

MAX_MODELS: Final = 4
"""Heat maps; more models than that only have their line in the table."""
MAX_EVENTS: Final = 200


@dataclass(frozen=True, slots=True)
class Device:
    """Whose past it is."""

    name: str
    version: str
    board: str = ""


def page(device: Device, past: Past, span: Span) -> str:
    """The whole document."""
    by_model = _by_model(past.answers)
    busiest = sorted(by_model, key=lambda model: -_tokens(by_model[model]))
    parts = [
        f"<h1>{escape(device.name)}</h1>",
        f"<p>{_when(span.start)} to {_when(span.end)}, columns of {span.column_s / 60:.0f} min · "
        f"{escape(' · '.join(filter(None, (f'stoker {device.version}', device.board))))}</p>",
        _summary(past, by_model),
        *(_model_chart(span, model, by_model[model]) for model in busiest[:MAX_MODELS]),
    ]
    if not by_model:
        parts.append("<h2>Answers</h2><p>Nobody asked in this time.</p>")
    parts += [_heat(span, past.columns), _tokens_chart(span, past.answers), _events(span, past)]
    style = (resources.files("stoker.cli") / "report.css").read_text(encoding="utf-8")
    title = f"Stoker report: {escape(device.name)}"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>'
        f'{title}</title><meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{style}</style></head><body>\n{''.join(parts)}\n</body></html>\n"
    )


def quantile_s(counts: Sequence[int], part: float) -> float | None:
    """As PromQL's histogram_quantile: straight between a bucket's bounds."""
    total = sum(counts)
    if not total:
        return None
    below, wanted = 0, part * total
    for row, count in enumerate(counts):
        if count and below + count >= wanted:
            if row >= len(BOUNDS_S):
                break
            low: float = BOUNDS_S[row - 1] if row else 0.0
            return low + (BOUNDS_S[row] - low) * (wanted - below) / count
        below += count
    return float(BOUNDS_S[-1])


def added(rows: Sequence[Sequence[int]]) -> list[int]:
    """Counts of several histograms together."""
    return [sum(column) for column in zip_longest(*rows, fillvalue=0)]


def _summary(past: Past, by_model: Mapping[str, Sequence[Answers]]) -> str:
    head = ("model", "answers", "failed", "tokens", "between tokens P50", "P99", "answer P99")
    rows = []
    for model, found in sorted(by_model.items()):
        gaps, waits = added([one.gaps for one in found]), added([one.durations for one in found])
        rows.append(
            (model, str(sum(waits)), str(sum(one.failed for one in found)), str(_tokens(found)),
             _ms(quantile_s(gaps, 0.5)), _ms(quantile_s(gaps, 0.99)), _ms(quantile_s(waits, 0.99)))
        )  # fmt: skip
    hottest = max((c["temperature_c"] for c in past.columns if "temperature_c" in c), default=None)
    above = sum(column.get("above_wall_s", 0.0) for column in past.columns)
    restarts = sum(event.kind == "restart" for event in past.events)
    words = [
        "" if hottest is None else f"hottest {hottest:.1f} °C",
        "" if hottest is None else f"{above:.0f} s above the wall",
        f"{restarts} restart{'s' * (restarts != 1)} of the runner",
    ]
    return (_table(head, rows) if rows else "") + f"<p>{' · '.join(filter(None, words))}</p>"


def _model_chart(span: Span, model: str, found: Sequence[Answers]) -> str:
    cells = [Cell(one.at, one.gaps) for one in found]
    lines = [
        Line([(cell.at, wait) for cell in cells
              if (wait := quantile_s(cell.counts, part)) is not None], look)
        for part, look in ((0.5, "p50"), (0.99, "p99"))
    ]  # fmt: skip
    return (
        f"<h2>{escape(model)}: time between two tokens</h2>"
        '<p class="key"><i style="color:var(--cool)"></i><b>P50</b>'
        '<i style="color:var(--ink)"></i><b>P99</b> the darker, the more of a column\'s tokens</p>'
        + charts.heat_map(span, cells, BOUNDS_S, lines)
    )


def _heat(span: Span, columns: Sequence[Mapping[str, Any]]) -> str:
    def points(key: str, scale: float = 1.0) -> list[tuple[float, float]]:
        return [(column["at"], column[key] * scale) for column in columns if key in column]

    warm = points("temperature_c")
    if not warm:
        return "<h2>Heat</h2><p>This machine shows no temperature.</p>"
    lines = [Line(warm, "hot"), Line(points("wall_c"), "wall")]
    out = "<h2>Temperature, highest of each column, and the wall</h2>" + charts.strip(
        span, lines, "°C"
    )
    caps = points("cap_hz", 1e-9)
    if caps:
        out += "<h2>Lowest frequency cap</h2>" + charts.strip(span, [Line(caps, "cool")], "GHz")
    power = points("power_w")
    if power:
        out += "<h2>Power</h2>" + charts.strip(span, [Line(power, "cool")], "W", floor=0.0)
    return out


def _tokens_chart(span: Span, answers: Sequence[Answers]) -> str:
    """Tokens a second, averaged over the column: what the device did, idle time included."""
    made: dict[float, float] = {}
    for one in answers:
        made[one.at] = made.get(one.at, 0.0) + one.completion_tokens / span.column_s
    if not made:
        return ""
    line = Line(sorted(made.items()), "bar")
    chart = charts.strip(span, [line], "/s", bars=True, floor=0.0)
    return "<h2>Tokens written a second, mean of each column</h2>" + chart


def _events(span: Span, past: Past) -> str:
    if not past.events:
        return ""
    ticks = charts.marks(span, [(event.at, event.kind, event.text) for event in past.events])
    newest = past.events[-MAX_EVENTS:][::-1]
    rows = [(_when(event.at), event.kind, event.text) for event in newest]
    return "<h2>What happened</h2>" + ticks + _table(("when", "what", ""), rows, numbers=False)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = True) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=n' if numbers and at else ''}>{escape(cell)}</{tag}>"
            for at, cell in enumerate(cells)
        )

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f"<table><tr>{line(head, 'th')}</tr>{body}</table>"


def _by_model(answers: Sequence[Answers]) -> dict[str, list[Answers]]:
    found: dict[str, list[Answers]] = {}
    for one in answers:
        found.setdefault(one.model, []).append(one)
    return found


def _tokens(found: Sequence[Answers]) -> int:
    return sum(one.completion_tokens for one in found)


def _ms(wait_s: float | None) -> str:
    if wait_s is None:
        return "–"
    return f"{wait_s * 1e3:.0f} ms" if wait_s < 10 else f"{wait_s:.1f} s"


def _when(at: float) -> str:
    return time.strftime("%d %b %Y %H:%M", time.localtime(at))
