"""Which devices a campaign has reached, and by which name they tell how its update ended. Pure.

The device decides by the same two rules (``stoker.core.fleet_desired``); a property test holds
both sides together, so that neither has to load the other.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping

INSTALL = "update.install"


@functools.lru_cache(maxsize=1 << 16)
def draw(campaign: str, device: str) -> float:
    """0 ≤ number < 1, always the same for the same two: who is in at 5 % is also in at 10 %."""
    seed = f"{campaign}\0{device}".encode()
    return int.from_bytes(hashlib.sha256(seed).digest()[:8], "big") / 2**64


def reached(campaign: str, percent: float, device: str) -> bool:
    return draw(campaign, device) < percent / 100


def wish(update: Mapping[str, object]) -> str:
    """The digest in the ids of records that a desired state's ``[update]`` makes on devices."""
    args = {key: value for key, value in update.items() if key != "consent"}
    text = json.dumps([INSTALL, args], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def is_of(record: str, digest: str) -> bool:
    """Whether a record's id is of the wish: ``desired-VERSION-DIGEST``, or with ``-N`` behind."""
    parts = record.split("-")
    return len(parts) in (3, 4) and parts[0] == "desired" and parts[2] == digest
