"""Variants as a picture: size against perplexity, or against divergence where it is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stoker.errors import Dependency, StorageFailed

_MIB = 1 << 20


def save(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """A PNG. Raises Dependency, StorageFailed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise Dependency(
            f"cannot draw a plot: {error}", hint="install python3-matplotlib"
        ) from error
    picture = Figure(figsize=(9, 4), layout="constrained")
    quality = "kl_mean" if all("kl_mean" in row for row in rows) else "perplexity"
    title = {"kl_mean": "divergence from the reference (nats a token)"}.get(quality, quality)
    for place, key, name in zip(
        picture.subplots(1, 2), ("bytes", "decode_tok_s"), ("MiB", "tokens/s"), strict=True
    ):
        scale = _MIB if key == "bytes" else 1
        for row in rows:
            x, y = row[key] / scale, row[quality]
            place.plot(x, y, "o", color="C3")
            place.annotate(
                row["model"], (x, y), textcoords="offset points", xytext=(5, 4), fontsize=7
            )
        place.set_xlabel(name)
        place.set_ylabel(title)
        place.grid(alpha=0.3)
        place.margins(0.15)
    try:
        picture.savefig(path, dpi=120, format="png")
    except OSError as error:
        raise StorageFailed(f"cannot write {path}: {error.strerror}") from error
