"""The next desired state of an audience: counted on from what the fleet has signed.

The broker's copy counts only when its signature does; the operator's ledger remembers what
the broker may have lost. No I/O of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from stoker_ota.core import fleet_orders, fleet_versions
from stoker_ota.core.fleet_documents import Desired
from stoker_ota.errors import BadDocument, OtaError
from stoker_ota.ports.campaign import Ledger, Pen


@dataclass(frozen=True, slots=True)
class Found:
    """``before``: the newest that the fleet has signed. ``remarks``: what was not believed."""

    before: Desired | None = None
    remarks: tuple[str, ...] = ()

    @property
    def version(self) -> int:
        return self.before.version if self.before is not None else 0


def known(audience: str, pen: Pen, ledger: Ledger, broker: bytes) -> Found:
    """By the ledger and by what the broker keeps; b"" = it keeps nothing."""
    own, remarks = ledger.document(audience), []
    before = pen.recall(own) if own else None
    try:
        theirs = pen.read(broker) if broker else None
        if theirs is not None and theirs.audience != audience:
            raise BadDocument(f"cannot use it: it is for {theirs.audience}")
    except OtaError as error:
        theirs = None
        remarks.append(f"what the broker keeps of {audience} is not this fleet's: {error.message}")
    if theirs is not None and (before is None or theirs.version > before.version):
        before = theirs
    return Found(before, tuple(remarks))


def made(
    table: Mapping[str, object], found: Found, told: Sequence[int], now: datetime, days: int
) -> Desired:
    """``told``: what devices say that they have. InvalidRequest."""
    if table.get("version"):
        return fleet_orders.desired(table, found.before, now, days)
    newest = fleet_versions.judged(str(table.get("audience", "")), found.version, told)
    return fleet_orders.desired(table, found.before, now, days, newest=newest)
