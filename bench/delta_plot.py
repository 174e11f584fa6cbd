"""Draws the delta benchmark's table: size against change, and size and cost against the peers.

Run in the peers' environment, which has matplotlib: FIGURES.json PLOT.png.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

SIGMAS: Final = ("0.1", "1", "2", "10")
SERIES: Final = (
    ("random.q4_k_m", "random weights, Q4_K_M"), ("random.q8_0", "random weights, Q8_0"),
    ("smollm2.q4_0", "SmolLM2, Q4_0"), ("smollm2.q8_0", "SmolLM2, Q8_0"),
)  # fmt: skip
OTHERS: Final = (
    ("smollm2.q4_0.lora", "merged LoRA"), ("smollm2.q4_0.template", "chat template"),
    ("smollm2.q4_0.requantised", "re-quantised"), ("runtime", "llama.cpp's libraries"),
)  # fmt: skip
PEERS: Final = ("bsdiff4", "xdelta3", "zstd", "detools", "hdiffpatch")
OURS: Final = "random.q4_k_m.2pct"


def draw(rows: dict[str, dict[str, Any]], target: Path) -> None:
    import matplotlib as plots

    plots.use("Agg")
    from matplotlib import pyplot

    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(15, 4.6))
    for key, name in SERIES:
        points = [(float(s), _value(rows, f"{key}.{s}pct.bz2_ratio")) for s in SIGMAS]
        known = [(x, y) for x, y in points if y is not None]
        left.plot([x for x, _ in known], [y for _, y in known], marker="o", label=name)
    left.set_xscale("log")
    left.set_xlabel("change: σ of the change ÷ σ of the weights, %")
    left.set_ylabel("delta ÷ new file (bz2 and Huffman)")
    left.set_ylim(0.0, None)
    left.legend()
    shown = [(name, _value(rows, f"{key}.smallest_ratio")) for key, name in OTHERS]
    _bars(middle, [(name, value) for name, value in shown if value is not None])
    middle.set_title("other changes: delta ÷ new file")
    compared = [("stoker, bz2", _value(rows, f"{OURS}.bz2_ratio")),
                ("stoker, zstd", _value(rows, f"{OURS}.zstd_ratio"))]  # fmt: skip
    compared += [(name, _value(rows, f"peer.{name}.ratio")) for name in PEERS]
    _bars(right, [(name, value) for name, value in compared if value is not None])
    right.set_title("Q4_K_M at 2 %: delta ÷ new file")
    figure.tight_layout()
    # no date and no version in it: the same figures give the same picture
    figure.savefig(target, dpi=90, metadata={"Software": None})


def _bars(axes: Any, shown: list[tuple[str, float]]) -> None:
    names = [name for name, _ in shown][::-1]
    values = [value for _, value in shown][::-1]
    bars = axes.barh(names, values)
    axes.bar_label(bars, [f"{value:.4f}" if value < 0.01 else f"{value:.3f}" for value in values])
    axes.margins(x=0.2)


def _value(rows: dict[str, dict[str, Any]], key: str) -> float | None:
    row = rows.get(f"delta.{key}")
    return None if row is None else float(row["value"])


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text())["metrics"], Path(sys.argv[2]))
