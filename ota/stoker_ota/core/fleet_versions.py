"""Which version of a desired state comes next: by what the fleet signed, and by devices' word.

What it signed counts, wherever that was kept. Devices' word is not signed: it helps where a
broker or a ledger was set back, and is bounded, so that nobody can use up all versions. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from stoker_ota.core import strict_json
from stoker_ota.core.campaign_count import MAX_STATE_BYTES
from stoker_ota.core.fields import MAX_VERSION
from stoker_ota.errors import InvalidRequest, OtaError

MOST_AHEAD: Final = 1000
"""So far a version may be ahead of ours by devices' word alone: the broker may have been set
back, and nobody may use up all versions there are."""


def newest(known: int, told: Iterable[int]) -> int:
    """The highest version there is by what we know for sure and what devices say."""
    return max((n for n in told if known < n <= known + MOST_AHEAD), default=known)


def beyond(known: int, told: Iterable[int]) -> int:
    """The highest that devices say and that is not believed; 0 = none."""
    return max((n for n in told if n > known + MOST_AHEAD), default=0)


def judged(audience: str, known: int, told: Iterable[int]) -> int:
    """``newest``. InvalidRequest when nothing is known and devices have more than is believed."""
    told = tuple(told)
    if not known and beyond(known, told):
        raise InvalidRequest(
            f"cannot tell the next version of {audience}: neither the broker nor this folder has "
            f"one that the fleet has signed, and a device says that it has {beyond(known, told)}",
            hint="--version N, if that is true: higher than what devices have",
        )
    return newest(known, told)


def told(state: bytes, audience: str) -> int:
    """What a device's state says that it has of an audience; 0 = nothing that makes sense."""
    try:
        found = strict_json.loads(state, max_bytes=MAX_STATE_BYTES, what="state")
    except OtaError:
        return 0
    desired = found.get("desired") if isinstance(found, dict) else None
    version = desired.get(audience) if isinstance(desired, dict) else None
    return version if type(version) is int and 0 < version <= MAX_VERSION else 0
