"""Tables of operating points as they are kept in the state directory. Pure.

One list for all models and boards, the newest first. An entry that does not fit is left out: it
is measured again, which costs a minute and no device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from stoker.errors import InvalidRequest, StokerError
from stoker.events.operating import PHASES, Point, PointTable, Setting
from stoker.getters import Table
from stoker.units import KiloHertz, Watts

VERSION: Final = 1
MOST_TABLES: Final = 16
_MOST_POINTS: Final = 4096


def to_state(tables: Sequence[PointTable]) -> dict[str, object]:
    return {"version": VERSION, "tables": [_table(table) for table in tables[:MOST_TABLES]]}


def from_state(state: Mapping[str, object]) -> tuple[PointTable, ...]:
    """What of it can be used; never raises."""
    entries = state.get("tables")
    if state.get("version") != VERSION or not isinstance(entries, list):
        return ()
    found: list[PointTable] = []
    for entry in entries[:MOST_TABLES]:
        try:
            found.append(_read(Table(entry, _fail)))
        except (StokerError, TypeError, AttributeError):
            continue
    return tuple(found)


def find(tables: Sequence[PointTable], board: str, fingerprint: str) -> PointTable | None:
    return next((t for t in tables if (t.board, t.fingerprint) == (board, fingerprint)), None)


def put(tables: Sequence[PointTable], fresh: PointTable) -> tuple[PointTable, ...]:
    """In the place of the one of the same board and model, in front."""
    key = (fresh.board, fresh.fingerprint)
    others = [table for table in tables if (table.board, table.fingerprint) != key]
    return (fresh, *others)[:MOST_TABLES]


def _table(table: PointTable) -> dict[str, object]:
    return {
        "board": table.board,
        "model": table.model,
        "fingerprint": table.fingerprint,
        "threads": table.threads,
        "size": table.size,
        "metered": table.metered,
        "points": [
            {
                **_setting(point.setting),
                "watts": round(point.watts, 4),
                "tokens_per_s": round(point.tokens_per_s, 4),
            }
            for point in table.points
        ],
    }


def _setting(setting: Setting) -> dict[str, object]:
    caps: dict[str, object] = {name: int(khz) for name, khz in setting.caps}
    return {"phase": setting.phase, "threads": setting.threads, "caps_khz": caps}


def _read(table: Table) -> PointTable:
    out = PointTable(
        board=table.text("board", max_bytes=128),
        model=table.text("model", max_bytes=256),
        fingerprint=table.text("fingerprint", max_bytes=4096),
        threads=table.whole("threads", low=1, high=4096),
        size=table.whole("size", low=1, high=_MOST_POINTS),
        metered=table.flag("metered"),
        points=tuple(_point(item) for item in table.tables("points", max_items=_MOST_POINTS)),
    )
    table.finish()
    return out


def _point(table: Table) -> Point:
    caps = table.raw("caps_khz")
    if not isinstance(caps, dict):
        table.refuse("caps_khz", "expected a table")
    for khz in caps.values():
        if isinstance(khz, bool) or not isinstance(khz, int) or not 0 < khz < 1 << 32:
            table.refuse("caps_khz", "expected frequencies in kHz")
    named = tuple(sorted((str(name), KiloHertz(khz)) for name, khz in caps.items()))
    setting = Setting(
        table.choice("phase", PHASES), table.whole("threads", low=1, high=4096), named
    )
    watts = table.number("watts", low=0.0, high=1e5)
    rate = table.number("tokens_per_s", low=0.0, high=1e9)
    table.finish()
    return Point(setting, Watts(watts), rate)


def _fail(path: str, reason: str) -> StokerError:
    return InvalidRequest(f"cannot read operating points: {path}: {reason}")
