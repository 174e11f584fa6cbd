"""What devices say of a campaign, kept by device and counted. Pure.

Nothing here is signed: a broker that lies can slow a campaign or stop it, and can hurry it on
as far as its plan's last step; what devices install is signed by others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from stoker_ota.core import campaign_share, strict_json
from stoker_ota.core.campaign import Counts, Plan
from stoker_ota.core.fleet_orders import FINAL
from stoker_ota.errors import OtaError
from stoker_ota.getters import Table

MAX_STATE_BYTES: Final = 120 << 10
WAITS, OUTSIDE, LOST = "waits", "outside", "lost"


@dataclass(frozen=True, slots=True)
class Seen:
    """One device. ``away_s``: since when it has been away by our clock; 0 = it is there.

    ``state`` is that of the update's record, "" = none was heard of.
    """

    groups: tuple[str, ...] = ()
    session: int = 0
    away_s: float = 0.0
    state: str = ""
    number: int = 0
    code: str = ""
    detail: str = ""
    desired: Mapping[str, int] | None = None
    own_update: bool = False  # its own desired state has one: no campaign is about it


def heard(seen: Seen, leaf: str, payload: bytes, digest: str, now_s: float) -> Seen:
    """After a device's ``state``, ``status`` or ``result``; what makes no sense changes nothing."""
    try:
        table = Table(strict_json.loads(payload, max_bytes=MAX_STATE_BYTES, what=leaf), _Strange)
        match leaf:
            case "state":
                return _state(seen, table, digest)
            case "status":
                return _status(seen, table, now_s)
            case "result":
                return _result(seen, table, digest)
    except (OtaError, _Strange):
        pass
    return seen


def standing(plan: Plan, percent: float, name: str, seen: Seen, now_s: float) -> str:
    """outside (of the step), a final state, lost, or waits and what it is at."""
    if not campaign_share.reached(plan.id, percent, name):
        return OUTSIDE
    if seen.state in FINAL:
        return seen.state
    if seen.away_s and now_s - seen.away_s >= plan.lost_s:
        return LOST
    return seen.state or WAITS


def members(plan: Plan, devices: Mapping[str, Seen]) -> Iterable[tuple[str, Seen]]:
    wanted = set(plan.groups)
    return (
        (name, seen)
        for name, seen in devices.items()
        if wanted & set(seen.groups) and not seen.own_update
    )


def counts(plan: Plan, percent: float, devices: Mapping[str, Seen], now_s: float) -> Counts:
    total = reached = succeeded = failed = 0
    for name, seen in members(plan, devices):
        total += 1
        found = standing(plan, percent, name, seen, now_s)
        reached += found != OUTSIDE
        succeeded += found == "succeeded"
        failed += found in FINAL[1:] or found == LOST
    return Counts(total, reached, succeeded, failed)


def _state(seen: Seen, table: Table, digest: str) -> Seen:
    groups = table.texts("groups", (), max_items=8)
    desired = table.table("desired")
    versions = {name: desired.whole(name, low=0, high=(1 << 53) - 1) for name in desired.keys()[:8]}
    own = table.flag("own_update", False)
    seen = replace(seen, groups=groups, desired=versions, own_update=own)
    for row in table.tables("results", max_items=64):
        if campaign_share.is_of(row.text("id", max_bytes=128), digest):
            seen = _ended(seen, row.text("state", max_bytes=16), row.text("code", "", max_bytes=64))
    return seen


def _status(seen: Seen, table: Table, now_s: float) -> Seen:
    """A late will has an older session than the birth it comes after; a birth is never late, and a
    device that was made anew counts from the beginning.
    """
    session, online = table.whole("session", low=0, high=(1 << 53) - 1), table.flag("online")
    if session < seen.session and not online:
        return seen
    away = 0.0 if online else seen.away_s or now_s
    return replace(seen, session=session, away_s=away)


def _result(seen: Seen, table: Table, digest: str) -> Seen:
    if not campaign_share.is_of(table.text("id", max_bytes=128), digest):
        return seen
    number = table.whole("number", low=0, high=(1 << 53) - 1)
    state = table.text("state", max_bytes=16)
    if number < seen.number and state not in FINAL:
        return seen
    found = _ended(seen, state, table.text("code", "", max_bytes=64))
    detail = table.text("detail", "", max_bytes=4000)
    return replace(found, number=max(number, seen.number), detail=detail or found.detail)


def _ended(seen: Seen, state: str, code: str) -> Seen:
    """A record that has ended stays so."""
    if seen.state in FINAL:
        return seen
    return replace(seen, state=state, code=code or seen.code)


class _Strange(Exception):
    """A table that is not what devices write."""

    def __init__(self, _path: str, _reason: str) -> None:
        super().__init__()
