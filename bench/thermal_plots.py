"""Draws what bench.thermal kept of its runs: temperature, clock and tokens over time.

    python thermal_plots.py RUNS.json FOLDER       in the environment of the bench lock (matplotlib)

Must not import stoker or bench: that environment has neither.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

COLOURS = {"open-loop": "0.6", "step-table": "tab:orange", "step-wise": "tab:purple",
           "ipa": "tab:green", "ipa-tuned": "tab:blue", "stoker": "tab:red",
           "stoker-points": "tab:red"}  # fmt: skip


def draw(run: dict[str, object], folder: Path) -> Path:
    """One picture of one plant and load, a line per law."""
    curves = run["curves"]
    assert isinstance(curves, dict)
    tokens = any(rows[-1][3] > 0 for rows in curves.values())
    figure, axes = plt.subplots(3 if tokens else 2, 1, sharex=True, figsize=(8, 6))
    for law, rows in curves.items():
        times = [row[0] for row in rows]
        style = {"color": COLOURS.get(law), "linewidth": 0.8, "label": law}
        axes[0].plot(times, [row[1] for row in rows], **style)
        axes[1].plot(times, [row[2] for row in rows], **style)
        if tokens:
            axes[2].plot(times, [row[3] / 1000 for row in rows], **style)
    axes[0].axhline(run["wall_c"], color="black", linewidth=0.6, linestyle="--")
    axes[0].set_ylabel("junction, °C")
    axes[1].set_ylabel("clock, MHz")
    if tokens:
        axes[2].set_ylabel("tokens, thousands")
    axes[0].legend(loc="lower right", fontsize=7, ncol=3)
    axes[0].set_title(f"{run['plant']}, {run['load']} (simulated)", fontsize=10)
    axes[-1].set_xlabel("seconds")
    figure.tight_layout()
    path = folder / f"thermal_{run['plant']}_{run['load']}.png".replace("@", "-").replace(" ", "-")
    figure.savefig(path, dpi=80)
    plt.close(figure)
    return path


if __name__ == "__main__":
    for one in json.loads(Path(sys.argv[1]).read_text()):
        print(draw(one, Path(sys.argv[2])))
