"""What one bench found, and two of them side by side. Pure: values in, lines and tables out.

A figure has all its runs; what is shown is their median. A difference within the spread of
both is no difference, and is told as one.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from stoker_client import StokerClientError

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Figure:
    """``key`` in JSON and in plots; ``better``: "higher", "lower" or "" (just to know)."""

    key: str
    name: str
    unit: str
    better: str = ""


FIGURES: Final = (
    Figure("load_s", "load time", "s", "lower"),
    Figure("prefill_tok_s", "prefill", "tokens/s", "higher"),
    Figure("first_token_ms", "first token", "ms", "lower"),
    Figure("decode_tok_s", "decode", "tokens/s", "higher"),
    Figure("gap_p50_ms", "between tokens P50", "ms", "lower"),
    Figure("gap_p99_ms", "between tokens P99", "ms", "lower"),
    Figure("peak_rss_bytes", "peak memory (RSS)", "MiB", "lower"),
    Figure("peak_pss_bytes", "peak memory (PSS)", "MiB", "lower"),
    Figure("power_w", "power", "W", "lower"),
    Figure("joules_per_token", "energy", "J/token", "lower"),
    Figure("temperature_rise_k", "temperature rise", "K", "lower"),
    Figure("perplexity", "perplexity", "", "lower"),
)
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Bench:
    """Of one model on one device; ``values``: by a figure's key, one for each run."""

    model: str
    board: str
    version: str
    when: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def median(self, key: str) -> float | None:
        found = self.values.get(key)
        return statistics.median(found) if found else None

    def plain(self) -> dict[str, Any]:
        return {
            "version": VERSION, "model": self.model, "board": self.board, "stoker": self.version,
            "when": self.when, "settings": dict(self.settings),
            "values": {key: list(values) for key, values in self.values.items()},
            "medians": {key: self.median(key) for key in self.values},
        }  # fmt: skip


def parse(data: object, source: str) -> Bench:
    """What ``plain`` made. Raises invalid-request."""
    try:
        assert isinstance(data, dict)
        assert data["version"] == VERSION
        values = {
            str(key): tuple(float(value) for value in found)
            for key, found in data["values"].items()
        }
        texts = [str(data[key]) for key in ("model", "board", "stoker", "when")]
        model, board, version, when = texts
        return Bench(model, board, version, when, dict(data["settings"]), values)
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as fault:
        raise StokerClientError(
            "invalid-request", f"cannot read {source}: it is no result of stokerctl bench",
            hint="make one with: stokerctl bench --save FILE",
        ) from fault  # fmt: skip


def one(found: Bench) -> list[tuple[str, ...]]:
    """Rows of (figure, median, spread)."""
    rows: list[tuple[str, ...]] = [("", found.model, "RUNS")]
    for figure in FIGURES:
        values = found.values.get(figure.key)
        if values:
            low, high = min(values), max(values)
            spread = f"{_number(figure, low)} … {_number(figure, high)}" if len(values) > 1 else ""
            rows.append((figure.name, shown(figure, statistics.median(values)), spread))
    return rows


def two(before: Bench, after: Bench) -> list[tuple[str, ...]]:
    """Rows of (figure, before, after, change); the change says whether it is for the better."""
    titles = (before.model, after.model)
    if before.model == after.model:
        titles = (f"{before.model}, before", f"{after.model}, after")
    rows: list[tuple[str, ...]] = [("", *titles, "CHANGE")]
    for figure in FIGURES:
        old, new = before.median(figure.key), after.median(figure.key)
        if old is None and new is None:
            continue
        left, right = (shown(figure, value) if value is not None else "–" for value in (old, new))
        rows.append((figure.name, left, right, change(figure, before, after)))
    return rows


def change(figure: Figure, before: Bench, after: Bench) -> str:
    """Such as "+12 % better"; "" where one of them is not known."""
    old, new = before.median(figure.key), after.median(figure.key)
    if old is None or new is None or not old:
        return ""
    percent = round(100 * (new - old) / abs(old), 1)
    if not percent:
        return "same"
    share = f"{percent:+.1f} %"
    first, second = before.values[figure.key], after.values[figure.key]
    if min(first) <= max(second) and min(second) <= max(first):
        return f"{share} (within the runs' spread)"
    if not figure.better:
        return share
    return f"{share} {'better' if (new > old) is (figure.better == 'higher') else 'worse'}"


def shown(figure: Figure, value: float) -> str:
    """With its unit."""
    return f"{_number(figure, value)} {figure.unit}".rstrip()


def _number(figure: Figure, value: float) -> str:
    if figure.unit == "MiB":
        return f"{value / _MIB:.0f}"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
