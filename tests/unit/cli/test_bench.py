"""Results of stokerctl bench: medians, differences that are none, kept files."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.cli import bench, bench_plot, bench_table
from stoker.cli.bench_table import Bench, Figure, change
from stoker_client import StokerClientError

SPEED = Figure("decode_tok_s", "decode", "tokens/s", "higher")
WAIT = Figure("gap_p99_ms", "P99", "ms", "lower")


def _bench(model: str = "tiny", **values: tuple[float, ...]) -> Bench:
    return Bench(model, "pi5", "1.0", "2026-01-01T00:00:00+0000", {"runs": 3}, values)


def test_a_result_shows_medians_with_units_and_spread() -> None:
    rows = bench_table.one(_bench(decode_tok_s=(9.0, 12.0, 10.0), peak_rss_bytes=(2.0 * 1024**3,)))
    assert rows[1:] == [
        ("decode", "10 tokens/s", "9 … 12"),
        ("peak memory (RSS)", "2048 MiB", ""),
    ]


@pytest.mark.parametrize(
    ("figure", "before", "after", "said"),
    [
        (SPEED, (10.0, 10.1), (12.0, 12.1), "+19.9 % better"),
        (SPEED, (12.0, 12.1), (10.0, 10.1), "-16.6 % worse"),
        (WAIT, (10.0,), (8.0,), "-20.0 % better"),
        (SPEED, (10.0, 13.0), (11.0, 14.0), "+8.7 % (within the runs' spread)"),
        (SPEED, (10.0,), (10.0,), "same"),
        (WAIT, (599.0,), (599.1,), "same"),
        (SPEED, (), (10.0,), ""),
    ],
)
def test_a_change_says_whether_it_is_one_and_for_the_better(
    figure: Figure, before: tuple[float, ...], after: tuple[float, ...], said: str
) -> None:
    old, new = (replace(_bench(), values={figure.key: found}) for found in (before, after))
    assert change(figure, old, new) == said


def test_two_models_stand_side_by_side_and_what_one_lacks_is_a_dash() -> None:
    rows = bench_table.two(_bench("a", decode_tok_s=(10.0,)), _bench("b", power_w=(3.0,)))
    assert rows == [("", "a", "b", "CHANGE"), ("decode", "10 tokens/s", "–", ""),
                    ("power", "–", "3 W", "")]  # fmt: skip


def test_a_kept_result_comes_back_as_it_was() -> None:
    kept = _bench(decode_tok_s=(1.0, 2.0), gap_p50_ms=(3.0,))
    assert bench_table.parse(json.loads(json.dumps(kept.plain())), "f") == kept


@pytest.mark.parametrize(
    "data", [None, [], {}, {"version": 2}, {"version": 1, "values": []},
             {**_bench().plain(), "values": {"x": ["y"]}}, {**_bench().plain(), "settings": 5}],
)  # fmt: skip
def test_a_file_that_is_no_result_is_refused_by_name(data: object) -> None:
    with pytest.raises(StokerClientError, match=r"cannot read old\.json: it is no result"):
        bench_table.parse(data, "old.json")


@given(st.text(st.characters(codec="utf-8"), max_size=20_000))
def test_pieces_of_a_text_are_short_and_lose_only_space(text: str) -> None:
    found = list(bench.pieces(text))
    assert all(0 < len(piece) <= bench.PIECE_CHARACTERS for piece in found)
    assert "".join("".join(found).split()) == "".join(text.split())


def test_no_two_prompts_begin_alike() -> None:
    assert bench.prompt_of(20).split()[0] != bench.prompt_of(20).split()[0]


def test_the_plot_is_a_png_of_a_sensible_size(tmp_path: Path) -> None:
    path = tmp_path / "plot.png"
    bench_plot.save([_bench("a", decode_tok_s=(9.0, 10.0), power_w=(3.0,)), _bench("b")], path)
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert 300 < width < 3000
    assert 100 < height < 3000


def test_a_plot_that_cannot_be_written_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(StokerClientError, match="cannot write"):
        bench_plot.save([_bench(power_w=(3.0,))], tmp_path / "nowhere" / "plot.png")
