"""Health probes from measurements: how surprised a good model is by given texts.

A variant's figures are negative log-likelihoods in nats a token of the same texts. The
bounds are their range, widened by a margin: a device's kernels differ a little, a broken
model by far more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from stoker_ota.core import strict_json
from stoker_ota.core.manifest import MAX_PROBES, Probe
from stoker_ota.errors import BadDocument, InvalidRequest, OtaError
from stoker_ota.getters import Table


def parse(data: bytes) -> dict[str, float]:
    """JSON lines {"text", "nats_per_token"}. Raises BadDocument."""
    figures: dict[str, float] = {}
    for line in data.splitlines():
        if not line.strip():
            continue
        table = Table(strict_json.loads(line, max_bytes=1 << 20, what="figures"), _fail)
        text = table.text("text", max_bytes=16 << 10)
        figures[text] = table.number("nats_per_token", low=0.0, high=100.0)
    if not figures:
        raise BadDocument("cannot read figures: there are none")
    return figures


def bounds(variants: Sequence[Mapping[str, float]], margin: float) -> tuple[Probe, ...]:
    """One probe a text. ``margin`` 0.1 = a tenth below the least and above the most."""
    if not math.isfinite(margin) or not 0.0 <= margin <= 1.0:
        raise InvalidRequest(f"cannot make probes: a margin of {margin} is outside 0..1")
    texts = list(variants[0])
    if len(texts) > MAX_PROBES:
        raise InvalidRequest(f"cannot make probes: more than {MAX_PROBES} texts")
    for variant in variants:
        if set(variant) != set(texts):
            raise InvalidRequest("cannot make probes: the variants were measured on other texts")
    out = []
    for text in texts:
        measured = [variant[text] for variant in variants]
        out.append(Probe(text, min(measured) * (1 - margin), max(measured) * (1 + margin)))
    return tuple(out)


def _fail(path: str, reason: str) -> OtaError:
    return BadDocument(f"cannot read figures: {path}: {reason}", details={"path": path})
