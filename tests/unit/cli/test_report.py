"""The device's past as a page: its numbers, its holes, and nothing from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.cli import report
from stoker.cli.report_charts import Cell, Line, Span, heat_map, strip
from stoker.cli.report_page import Device, added, page, quantile_s
from stoker.core.latency import Histogram
from stoker_client.history import BOUNDS_S, Answers, Event, Past

DEVICE = Device("kitchen <pi>", "1.2", "raspberrypi-5")
SPAN = Span(86_400.0, 2 * 86_400.0, 900.0)


def _answers(at: float, model: str = "tiny", gaps: tuple[int, ...] = (0, 0, 90, 10)) -> Answers:
    return Answers(at, model, gaps, 1.0, (0,) * 11 + (5,), 9.0, 50, 100, 1)


def _column(at: float, **more: float) -> dict[str, float]:
    return {"at": at, "span_s": 900.0, "above_wall_s": 0.0, "queue": 0, **more}


PAST = Past(
    [_column(90_000.0, temperature_c=61.5, wall_c=80.0, cap_hz=1.8e9, above_wall_s=4.0)],
    [_answers(90_000.0), _answers(95_400.0), _answers(90_000.0, "big <b>")],
    [Event(91_000.0, "restart", "killed by <signal> 9")],
)


class Reader(HTMLParser):
    """Well-formed enough that every opened tag is closed; keeps text and addresses."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag not in ("meta", "line", "circle", "polyline"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("line", "circle", "polyline"):
            return
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_page_has_the_numbers_and_is_complete_in_itself() -> None:
    text = page(DEVICE, PAST, SPAN)
    found = Reader(text)
    assert found.open == []
    assert found.links == []
    assert "script" not in found.tags
    assert not re.search(r"https?://|url\(|@import", text)
    words = "\n".join(found.words)
    for wanted in ("kitchen <pi>", "big <b>: time between two tokens", "hottest 61.5 °C",
                   "4 s above the wall", "1 restart of the runner",
                   "killed by <signal> 9"):  # fmt: skip
        assert wanted in words


def test_a_device_that_did_nothing_gets_a_page_too() -> None:
    words = "\n".join(Reader(page(DEVICE, Past([], [], []), SPAN)).words)
    assert "Nobody asked in this time." in words
    assert "This machine shows no temperature." in words


@given(st.lists(st.integers(0, 50), max_size=18), st.floats(0.01, 1.0))
def test_quantiles_are_those_of_the_agent(counts: list[int], part: float) -> None:
    """The client's code may not import the agent's, so that both have the formula."""
    ours = Histogram(tuple(counts)).quantile_s(part)
    assert quantile_s(counts, part) == (None if ours is None else pytest.approx(ours))


def test_histograms_of_different_lengths_add_up() -> None:
    assert added([(1, 2), (), (0, 1, 5)]) == [1, 3, 5]


def test_the_heat_map_has_a_cell_for_each_wait_and_the_darkest_is_the_commonest() -> None:
    svg = heat_map(SPAN, [Cell(90_000.0, (0, 0, 90, 10))], BOUNDS_S, [])
    shades = {
        title: float(shade)
        for shade, title in re.findall(r'fill-opacity="([\d.]+)"><title>([^<]*)</title>', svg)
    }
    assert len(shades) == 2
    assert max(shades, key=lambda title: shades[title]).endswith("90 tokens, 90% of 15 min")


@pytest.mark.parametrize("bucket", [0, 16, 17])
def test_waits_at_both_ends_of_the_axis_are_inside_the_picture(bucket: int) -> None:
    counts = (0,) * bucket + (3,)
    wait = quantile_s(counts, 0.99)
    assert wait is not None
    svg = heat_map(SPAN, [Cell(90_000.0, counts)], BOUNDS_S, [Line([(90_000.0, wait)], "p99")])
    box = re.search(r'viewBox="0 (-?\d+) \d+ (\d+)"', svg)
    assert box is not None
    low, high = float(box[1]), float(box[1]) + float(box[2])
    for y in map(float, re.findall(r' (?:y|cy)="(-?[\d.]+)"', svg)):
        assert low <= y <= high


def test_a_hole_in_time_breaks_the_line() -> None:
    points = [(90_000.0, 50.0), (90_900.0, 51.0), (99_000.0, 52.0), (99_900.0, 53.0)]
    assert strip(SPAN, [Line(points, "hot")], "°C").count("<polyline") == 2


@given(st.lists(st.floats(-40.0, 1e7), min_size=1, max_size=5))
def test_an_axis_holds_all_values(values: list[float]) -> None:
    svg = strip(SPAN, [Line([(90_000.0 + 900 * n, v) for n, v in enumerate(values)], "hot")], "x")
    drawn = re.findall(r'points="([^"]*)"', svg) or re.findall(r'cy="([\d.]+)"', svg)
    for piece in drawn:
        for y in re.findall(r"(?:,|^)(-?[\d.]+)(?: |$)", piece):
            assert -0.1 <= float(y) <= 96.1


@given(st.floats(0.25, 9000.0), st.floats(1.6e9, 2e9))
def test_columns_cover_the_wanted_hours_and_are_few(hours: float, now: float) -> None:
    span = report.span_of(hours, now)
    assert span.start <= now - hours * 3600 + span.column_s
    assert now <= span.end <= now + span.column_s
    assert span.column_s % 60 == 0
    assert (span.end - span.start) / span.column_s <= report.COLUMNS + 1
    assert len(span.ticks()) <= 10
