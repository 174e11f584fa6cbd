"""The words of campaigns on stoker-ota's command line."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any, Final

from stoker_ota.cli.authoring_words import _pki
from stoker_ota.cli.broker_words import add_broker
from stoker_ota.cli.command import Command


def _common(parser: argparse.ArgumentParser) -> Any:
    add = _pki(parser)
    add("--ledger", metavar="FILE", type=Path,
        help="what is known of campaigns (default: campaigns.db among the keys)")  # fmt: skip
    add_broker(parser)
    return add


def _fill_start(parser: argparse.ArgumentParser) -> None:
    add = _common(parser)
    add("deployment", metavar="DEPLOYMENT", help="what to install, as its manifest names it")
    add("--version", metavar="N", type=int, required=True, dest="number", help="its version")
    add("--group", metavar="NAME", action="append", required=True, dest="groups",
        help="whose devices (may be repeated)")  # fmt: skip
    add("--id", metavar="NAME", default="", help="of the campaign (default: made of the time)")
    add("--steps", metavar="LIST", type=_steps, default=(5.0, 25.0, 100.0),
        help="percentages of the devices, one after the other (default 5,25,100)")  # fmt: skip
    add("--success", metavar="PERCENT", type=float, default=90.0,
        help="of a step's devices succeed before the next step (default 90)")  # fmt: skip
    add("--abort", metavar="PERCENT", type=float, default=10.0,
        help="of a step's devices that failed end the campaign (default 10)")  # fmt: skip
    add("--soak-s", metavar="N", type=int, default=0, help="wait so long after each step")
    add("--window", metavar="HH:MM-HH:MM", default="", help="begin further steps only then (UTC)")
    add("--lost-s", metavar="N", type=int, default=1800,
        help="a device away for so long counts as failed until it is back (1800)")  # fmt: skip


def _steps(word: str) -> tuple[float, ...]:
    if not re.fullmatch(r"\d{1,3}(\.\d{1,4})?(,\d{1,3}(\.\d{1,4})?)*", word):
        raise argparse.ArgumentTypeError(f"{word} is not a list such as 5,25,100")
    return tuple(float(part) for part in word.split(","))


def _fill_known(parser: argparse.ArgumentParser) -> Any:
    add = _common(parser)
    add("id", metavar="CAMPAIGN", nargs="?", default="", help="default: the only one under way")
    add("--group", metavar="NAME", action="append", default=[], dest="groups",
        help="where to look for it without a ledger, if the broker has no wildcards")  # fmt: skip
    return add


def _fill_watch(parser: argparse.ArgumentParser) -> None:
    add = _fill_known(parser)
    add("--once", action="store_true", help="look, go on if it is time, and leave: for cron")


GROUPS: Final = {"campaign": "an update for many devices, step by step"}

COMMANDS: Final[tuple[Command, ...]] = (
    Command(
        ("campaign", "start"),
        "begin an update of groups, step by step",
        "Sign and publish the desired state of each group with an update and a percentage:\n"
        "devices draw by themselves whether they take part, always the same ones first. What\n"
        "else a group should be stays. Further steps are taken by 'campaign watch'.",
        (
            "stoker-ota campaign start chat --version 7 --group blue --broker mqtts://broker",
            "stoker-ota campaign start chat --version 7 --group blue --group green\n"
            "  --steps 1,10,100 --success 95 --abort 5 --soak-s 3600 --window 01:00-05:00\n"
            "  --broker mqtts://broker",
        ),
        _fill_start,
    ),
    Command(
        ("campaign", "watch"),
        "show a campaign and take its steps",
        "Show how a campaign goes. When enough devices of a step have succeeded the next one is\n"
        "published; when too many have failed it is aborted, with status 76. It may be stopped\n"
        "at any time and run again, also on another machine that has the keys: what it has to\n"
        "know is signed at the broker.",
        (
            "stoker-ota campaign watch --broker mqtts://broker",
            "stoker-ota campaign watch c-20260301-1200 --json --broker mqtts://broker",
            "stoker-ota campaign watch --once --broker mqtts://broker",
        ),
        _fill_watch,
    ),
    Command(
        ("campaign", "pause"),
        "let no more devices begin",
        "Devices that have begun go on; no other begins until 'campaign resume'.",
        ("stoker-ota campaign pause --broker mqtts://broker",),
        _fill_known,
    ),
    Command(
        ("campaign", "resume"),
        "go on with a paused campaign",
        "Devices of the present step may begin again.",
        ("stoker-ota campaign resume --broker mqtts://broker",),
        _fill_known,
    ),
    Command(
        ("campaign", "abort"),
        "end a campaign for ever",
        "No other device begins. Devices that have begun go on, and those that have succeeded\n"
        "keep the update: 'stoker-ota command update.rollback --group NAME' takes it back.",
        ("stoker-ota campaign abort --broker mqtts://broker",),
        _fill_known,
    ),
    Command(
        ("campaign", "report"),
        "what every device did",
        "The campaign's story, and the end of the update on each device of its groups.",
        (
            "stoker-ota campaign report --broker mqtts://broker",
            "stoker-ota campaign report c-20260301-1200 --json --broker mqtts://broker",
        ),
        _fill_known,
    ),
)
