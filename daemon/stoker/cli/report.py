"""The verb ``report``: the device's past on one page, or as JSON."""

from __future__ import annotations

import os
import socket
import time
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Final

from stoker.cli.report_charts import Span
from stoker.cli.report_page import Device, page
from stoker.cli.terminal import Terminal
from stoker_client import Stoker, StokerClientError
from stoker_client.history import Past

COLUMNS: Final = 96
_MINUTE_S: Final = 60.0


def run(args: Namespace, terminal: Terminal) -> int:
    if not args.html and not terminal.as_json:
        raise StokerClientError(
            "invalid-request", "cannot report: where to?",
            hint="name a file with --html FILE, or ask for --json",
        )  # fmt: skip
    span = span_of(args.hours, time.time())
    with Stoker(args.bus) as stoker:
        past = stoker.history(span.start, span.end, span.column_s)
        if terminal.as_json:
            terminal.json(
                {"from": span.start, "to": span.end, "span_s": span.column_s, **_plain(past)}
            )
        if not args.html:
            return 0
        status, heat = stoker.status(), stoker.thermal()
    device = Device(
        socket.gethostname(), str(status.get("version", "")), str(heat.get("board", ""))
    )
    _write(Path(args.html), page(device, past, span))
    if not terminal.as_json:
        terminal.line(f"{args.html}: {args.hours:g} h, {len(past.columns)} columns, "
                      f"{len(past.events)} events")  # fmt: skip
    return 0


def span_of(hours: float, now: float) -> Span:
    """The last ``hours``, in columns of whole minutes that end on a round one."""
    column_s = max(_MINUTE_S, -(-hours * 3600 // COLUMNS // _MINUTE_S) * _MINUTE_S)
    end = -(-now // column_s) * column_s
    start = end - -(-hours * 3600 // column_s) * column_s
    return Span(start, end, column_s)


def _plain(past: Past) -> dict[str, object]:
    return {
        "columns": past.columns,
        "answers": [asdict(one) for one in past.answers],
        "events": [asdict(event) for event in past.events],
    }


def _write(path: Path, text: str) -> None:
    """Whole or not at all: a browser may be looking."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise StokerClientError(
            "storage-failed", f"cannot write {path}: {error.strerror}"
        ) from error
