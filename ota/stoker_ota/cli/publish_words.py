"""The words of publishing on stoker-ota's command line."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any, Final

from stoker_ota.cli.broker_words import add_broker
from stoker_ota.cli.command import Command
from stoker_ota.units import KIB, MIB


def _reached(parser: argparse.ArgumentParser) -> Any:
    add_broker(parser)
    parser.add_argument("--max-rate", metavar="RATE", type=_rate, default=0,
        help="bytes a second, such as 500K or 2M (default: no limit)")  # fmt: skip
    return parser.add_argument


def _rate(word: str) -> int:
    match = re.fullmatch(r"(\d{1,9})([KkMm]?)", word)
    if not match:
        raise argparse.ArgumentTypeError(f"{word} is not a rate such as 500K or 2M")
    return int(match[1]) * {"": 1, "K": KIB, "M": MIB}[match[2].upper()]


def _fill_publish(parser: argparse.ArgumentParser) -> None:
    add = _reached(parser)
    add("bundle", metavar="BUNDLE", type=Path, help="a folder that 'bundle make' has made")
    add("--no-ask", action="store_true", help="send also what the broker has already")


def _fill_unpublish(parser: argparse.ArgumentParser) -> None:
    add = _reached(parser)
    add("bundle", metavar="BUNDLE", type=Path, help="the bundle that nobody needs any more")
    add("--keep", metavar="BUNDLE", type=Path, nargs="*", default=[],
        help="bundles whose blobs stay, also those that both have")  # fmt: skip


COMMANDS: Final[tuple[Command, ...]] = (
    Command(
        ("publish",),
        "put a bundle on a broker",
        "Publish a bundle as retained messages of an MQTT broker: chunks, digests, manifests,\n"
        "trust documents, and the catalog last. What the broker has is not sent again, so that\n"
        "the same command goes on after an interruption.",
        (
            "stoker-ota publish usb --broker mqtts://broker.example --certificate operator.pem\n"
            "  --key operator.key",
            "stoker-ota publish usb --broker mqtt://localhost --max-rate 1M",
        ),
        _fill_publish,
    ),
    Command(
        ("unpublish",),
        "take a bundle's blobs off a broker",
        "Clear the retained blobs of an old bundle, except those that other bundles need too.\n"
        "Trust documents and the catalog stay.",
        ("stoker-ota unpublish old --keep new --broker mqtts://broker.example",),
        _fill_unpublish,
    ),
)
