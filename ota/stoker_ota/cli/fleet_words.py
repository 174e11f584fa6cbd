"""The words of a fleet's operator on stoker-ota's command line."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from stoker_ota.cli.authoring_words import _moment, _pki
from stoker_ota.cli.broker_words import add_broker
from stoker_ota.cli.command import Command
from stoker_ota.core.fleet_documents import COMMANDS as KNOWN
from stoker_ota.core.topics import DEFAULT_ROOT


def _fill_command(parser: argparse.ArgumentParser) -> None:
    add = _pki(parser)
    add("word", metavar="COMMAND", choices=KNOWN, help=", ".join(KNOWN))
    add("args", metavar="KEY=VALUE", nargs="*", help="arguments; values are JSON or words")
    add("--device", metavar="ID", default="", help="for one device")
    add("--group", metavar="NAME", default="", help="for a group")
    add("--label", metavar="KEY=VALUE", action="append", default=[],
        help="only for those of --to-group with all of these labels")  # fmt: skip
    add("--to-group", metavar="NAME", default="", help="where a command with labels goes")
    add("--expires-s", metavar="N", type=int, default=600, help="so long it counts (default 600)")
    add("--wait-s", metavar="N", type=float, default=60.0, help="for answers (default 60)")
    add("-o", "--output", metavar="FILE", type=Path, help="write it instead of sending it")
    add_broker(parser, required=False)


def _fill_desired(parser: argparse.ArgumentParser) -> None:
    add = _pki(parser)
    add("state", metavar="STATE", type=Path, help="TOML: audience, groups, [update], [policy], …")
    add("-o", "--output", metavar="FILE", type=Path, help="write it instead of publishing it")
    add("--version", metavar="N", type=int, default=0, dest="number",
        help="instead of the one after what the broker has")  # fmt: skip
    add_broker(parser, required=False)
    _moment(parser, 90)


def _fill_enroll(parser: argparse.ArgumentParser) -> None:
    add = _pki(parser)
    add("request", metavar="CSR", type=Path, help="what 'stokerctl fleet enroll' has printed")
    add("--device", metavar="ID", required=True, help="who it is")
    add("--operator", metavar="NAME", default="stoker", help="in the authority's certificate")
    add("--root", metavar="TOPIC", default=DEFAULT_ROOT, help="of all topics (default: stoker/1)")
    add("-o", "--output", metavar="FILE", type=Path, required=True, help="the certificate")
    _moment(parser, 365)


GROUPS: Final = {"device": "the devices' own certificates"}

COMMANDS: Final[tuple[Command, ...]] = (
    Command(
        ("command",),
        "sign a command, send it, wait for the answers",
        "Sign a command for a device, a group or those with some labels, send it through the\n"
        "broker and show what becomes of it. It is sent again until it is answered; devices do\n"
        "it once. Devices that are away get it if they come back before it expires.",
        (
            "stoker-ota command report.state --device dev-1 --broker mqtts://broker",
            "stoker-ota command update.install deployment=chat --group blue --broker mqtts://b",
            "stoker-ota command runtime.restart --device dev-1 -o restart.json",
        ),
        _fill_command,
    ),
    Command(
        ("desired",),
        "sign and publish what devices should be",
        "Sign the desired state of a device or a group, as the version after the one that the\n"
        "broker has, and publish it. It stays there; devices that are away find it.",
        (
            "stoker-ota desired blue.toml --broker mqtts://broker",
            "stoker-ota desired dev-1.toml --version 4 -o dev-1.json",
        ),
        _fill_desired,
    ),
    Command(
        ("device", "enroll"),
        "sign a device's certificate",
        "Sign the certificate with which a device enters the broker, and print the broker's\n"
        "rules for devices. The authority of devices is made when it is first needed.",
        ("stoker-ota device enroll dev-1.csr --device dev-1 -o dev-1.pem",),
        _fill_enroll,
    ),
)
