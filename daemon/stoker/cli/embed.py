"""The verb ``embed``: texts in, one vector a line out."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Final

from stoker.cli.answer import patiently
from stoker.cli.terminal import Terminal
from stoker_client import Stoker, StokerClientError

AT_ONCE: Final = 16  # texts in one call: the first line comes soon


def run(args: Namespace, terminal: Terminal) -> int:
    with Stoker(args.bus) as stoker:
        texts = _texts(args)
        while some := list(islice(texts, AT_ONCE)):
            for vector in patiently(stoker, partial(stoker.embed, some), {}, terminal):
                terminal.line(json.dumps(vector))
    return 0


def _texts(args: Namespace) -> Iterator[str]:
    """Words of the command line, or the lines of standard input that say something."""
    if args.texts:
        yield from args.texts
        return
    try:
        for line in sys.stdin:
            if line.strip():
                yield line.rstrip("\n")
    except UnicodeDecodeError as fault:
        raise StokerClientError(
            "invalid-request", f"cannot read standard input: byte {fault.start} is not UTF-8"
        ) from fault
