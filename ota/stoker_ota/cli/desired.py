"""stoker-ota desired: the next desired state of an audience, signed, published, remembered.

The version counts on from signed documents only: the broker's copy and the operator's own.
"""

from __future__ import annotations

import contextlib
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from stoker_ota.cli.console import Console
from stoker_ota.cli.fleet_keys import Keys
from stoker_ota.cli.keyring import Keyring, moment
from stoker_ota.core import fleet_orders, fleet_versions
from stoker_ota.core.fleet_documents import Desired
from stoker_ota.core.topics import Topics
from stoker_ota.drivers import folders
from stoker_ota.drivers.campaign_ledger import SqliteLedger
from stoker_ota.ports.campaign import Ledger, Pen
from stoker_ota.services import desired_next
from stoker_ota.services.desired_next import Found

LEDGER: Final = "campaigns.db"  # campaigns use the same one
KEPT_S: Final = 2.0
UNKNOWN_S: Final = 6.0
"""For the broker's copy when this folder has none: a slow broker must not look empty."""
QUIET_S: Final = 1.0
GATHER_S: Final = 30.0


class Line(Protocol):
    """An operator's connection; see ``OperatorLink``."""

    def kept(self, topic: str, timeout_s: float = ...) -> bytes: ...

    def subscribe(self, filters: Sequence[str]) -> None: ...

    def hear(self, timeout_s: float) -> Any: ...

    def publish(self, topic: str, payload: bytes, *, retain: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class Order:
    """``table``: the operator's file."""

    table: Mapping[str, object]
    topics: Topics
    now: datetime
    days: int

    @property
    def audience(self) -> str:
        return str(self.table.get("audience", ""))

    @property
    def topic(self) -> str:
        return fleet_orders.place(self.topics, self.audience)


def run(args: Namespace, console: Console, link: Callable[[Namespace], Any]) -> None:
    """OtaError."""
    ring = Keyring(args)
    order = Order(_table(args), Topics(args.root), moment(args), args.days)
    topic, pen = order.topic, Keys(ring)
    pen.ready()
    with contextlib.closing(SqliteLedger(ring.folder / LEDGER)) as ledger:
        if args.output is not None:
            found = desired_next.known(order.audience, pen, ledger, b"")
            made = desired_next.made(order.table, found, (), order.now, order.days)
            data = pen.sign(made)
            folders.write_new(args.output, data)
            ledger.keep_document(made.audience, made.version, data)
            _said(console, made, {"file": str(args.output)}, f"{args.output}: ")
            return
        with link(args) as line:
            made, found = publish(order, pen, ledger, line)
    for remark in found.remarks:
        console.note(remark)
    _said(console, made, {"topic": topic}, "", " is published")


def publish(order: Order, pen: Pen, ledger: Ledger, line: Line) -> tuple[Desired, Found]:
    """Found out, signed, kept, published: kept first, so that no version is given twice."""
    audience = order.audience
    wait_s = KEPT_S if ledger.document(audience) else UNKNOWN_S
    found = desired_next.known(audience, pen, ledger, line.kept(order.topic, wait_s))
    told = _told(order, line)
    made = desired_next.made(order.table, found, told, order.now, order.days)
    high = fleet_versions.beyond(found.version, told)
    if high:
        text = f"a device says that it has version {high} of {audience}: it is not believed"
        found = Found(found.before, (*found.remarks, text))
    data = pen.sign(made)
    ledger.keep_document(audience, made.version, data)
    line.publish(order.topic, data, retain=True)
    return made, found


def _told(order: Order, line: Line) -> list[int]:
    """What devices' retained states say that they have."""
    kind, _, name = order.audience.partition(":")
    topics = order.topics
    line.subscribe([topics.device(name, "state") if kind == "d" else topics.every_device("state")])
    found, limit = [], time.monotonic() + GATHER_S
    while time.monotonic() < limit and (heard := line.hear(QUIET_S)) is not None:
        if topics.whose(heard.topic)[1] == "state":
            found.append(fleet_versions.told(heard.payload, order.audience))
    return found


def _table(args: Namespace) -> dict[str, object]:
    table = folders.read_toml(args.state, "desired state", 256 << 10)
    if args.number:
        table["version"] = args.number
    return table


def _said(
    console: Console, made: Desired, more: Mapping[str, object], before: str, after: str = ""
) -> None:
    if console.as_json:
        console.json({"audience": made.audience, "version": made.version, **more})
    else:
        console.line(f"{before}{made.audience} version {made.version}{after}")
