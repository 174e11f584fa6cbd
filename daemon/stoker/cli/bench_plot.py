"""Benches as one PNG: a small chart for each figure. matplotlib is loaded here and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stoker.cli.bench_table import FIGURES, Bench, shown
from stoker_client import StokerClientError


def save(found: Sequence[Bench], path: Path) -> None:
    """Bars of medians with the spread of the runs. Raises dependency, storage-failed."""
    try:
        from matplotlib.figure import Figure as Picture
    except ImportError as error:
        raise StokerClientError(
            "dependency", f"cannot draw a plot: {error}", hint="install python3-matplotlib"
        ) from error
    figures = [figure for figure in FIGURES if any(one.values.get(figure.key) for one in found)]
    across = min(3, len(figures)) or 1
    down = -(-len(figures) // across) or 1
    picture = Picture(figsize=(4 * across, 2.4 * down), layout="constrained")
    axes = picture.subplots(down, across, squeeze=False)
    for place in axes.flat[len(figures) :]:
        place.set_axis_off()
    for figure, place in zip(figures, axes.flat, strict=False):
        for row, one in enumerate(found):
            value = one.median(figure.key)
            if value is None:
                continue
            runs = one.values[figure.key]
            reach = [[value - min(runs)], [max(runs) - value]]
            place.barh(row, value, xerr=reach, height=0.6, color=f"C{row}", ecolor="0.3")
            place.text(0, row, f" {shown(figure, value)}", va="center", fontsize=8)
        place.set_yticks(range(len(found)), [one.model for one in found], fontsize=8)
        place.set_ylim(len(found) - 0.4, -0.6)
        better = f" ({figure.better} is better)" if figure.better else ""
        place.set_title(f"{figure.name}{better}", fontsize=9)
        place.tick_params(axis="x", labelsize=7)
    try:
        picture.savefig(path, dpi=120, format="png")
    except OSError as error:
        raise StokerClientError(
            "storage-failed", f"cannot write {path}: {error.strerror}"
        ) from error
