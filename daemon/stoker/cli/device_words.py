"""The words of the device itself on stokerctl's command line: heat, past, updates, fleet."""

from __future__ import annotations

import argparse
import math
from typing import Final

from stoker.cli.verb import Verb


def _fill_thermal(parser: argparse.ArgumentParser) -> None:
    actions = ("show", "discover")
    parser.add_argument("action", nargs="?", choices=actions, default="show", help="what to do")


def _fill_calibrate(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("action", nargs="?", choices=("run", "show", "cancel"), default="run", help="what to do")
    add("--fresh", action="store_true", help="measure all points anew")


def _fill_rt(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("action", nargs="?", choices=("show", "probe"), default="show", help="what to do")
    add("--seconds", metavar="SECONDS", type=seconds, default=5.0, help="probe: time of each arm")
    add("--interval-us", metavar="N", type=_interval, default=1000, help="probe: between wake-ups")
    add("--cpu", metavar="N", type=int, help="probe: pin to this CPU")
    add("--tool", choices=("auto", "own", "cyclictest"), default="auto", help="probe: measure with")


def _fill_update(parser: argparse.ArgumentParser) -> None:
    actions = (
        "list", "check", "inspect", "install", "rollback", "confirm", "cancel", "history",
        "inhibit",
    )  # fmt: skip
    add = parser.add_argument
    add("action", nargs="?", choices=actions, default="list", help="what to do")
    add("target", metavar="FOLDER", nargs="?", help="the bundle; a name to confirm; why to inhibit")
    add("--deployment", metavar="NAME", help="which one, if there are several")
    add("--force", action="store_true", help="although it failed before, and without its hours")
    add("--no-wait", action="store_true", help="begin it and leave")
    add("--limit", metavar="N", type=_count, default=50, help="so many lines of history")


def _fill_bench(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", metavar="NAME", action="append", help="load this one first (may be repeated)")
    add("--runs", metavar="N", type=_count, default=3, help="answers to measure (3)")
    add("--prompt-tokens", metavar="N", type=_count, default=256, help="about so many (256)")
    add("--tokens", metavar="N", type=_count, default=64, help="of each answer (64)")
    add("--text", metavar="FILE", help="its perplexity too")
    add("--save", metavar="FILE", help="keep the result, to compare with later")
    add("--against", metavar="FILE", help="a kept result: before and after")
    add("--plot", metavar="FILE", help="a PNG of all that was compared")


def _fill_top(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--seconds", metavar="SECONDS", type=seconds, default=1.0, help="between two looks (1)")
    add("--count", metavar="N", type=_count, default=0, help="leave after N looks")


def _number(word: str) -> float:
    """What is no number is none of any range: argparse would name our function to people."""
    try:
        return float(word)
    except ValueError:
        return math.nan


def _count(word: str) -> int:
    value = _number(word)
    if not 1 <= value <= 1_000_000 or value % 1:
        raise argparse.ArgumentTypeError(f"{word} is not a whole number of 1..1000000")
    return int(value)


def _fill_report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--html", metavar="FILE", help="write one page, without anything beside it")
    parser.add_argument("--hours", metavar="N", type=_hours, default=24.0, help="of the past (24)")


def _hours(word: str) -> float:
    value = _number(word)
    if not 0.25 <= value <= 24 * 400:
        raise argparse.ArgumentTypeError(f"{word} is not 0.25..9600 hours")
    return value


def _fill_fleet(parser: argparse.ArgumentParser) -> None:
    actions = ("status", "test", "commands", "enroll", "adopt")
    add = parser.add_argument
    add("action", nargs="?", choices=actions, default="status", help="what to do")
    add("file", metavar="FILE", nargs="?", help="adopt: the signed certificate")


def seconds(word: str) -> float:
    value = _number(word)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{word} is not a time in seconds")
    return value


def _interval(word: str) -> int:
    value = _number(word)
    if not 100 <= value <= 1_000_000 or value % 1:
        raise argparse.ArgumentTypeError(f"{word} is not 100..1000000 microseconds")
    return int(value)


HEAT_AND_TIME: Final = (
    Verb(
        "thermal",
        "temperature, wall and clock caps",
        'Sensors, frequency policies, the cap that is set now, and why. "discover" lists all that\n'
        "this board shows of heat, what each is used for, and what could not be read and which\n"
        "packaged file grants it.",
        (
            "stokerctl thermal",
            "watch -n 1 stokerctl thermal",
            "stokerctl thermal discover",
        ),
        _fill_thermal,
    ),
    Verb(
        "calibrate",
        "measure what the model costs in heat (administrators)",
        "Measure tokens a second and watts of the loaded model over threads and clocks, for\n"
        "reading and for writing, so that heat is spent where it gives the most. Questions of\n"
        "others go first. Ctrl-C stops it and leaves the clocks to the heat loop; it goes on from\n"
        'there the next time. "show" prints the points, * marks those that nothing else beats.',
        (
            "sudo stokerctl calibrate",
            "sudo stokerctl calibrate --fresh",
            "stokerctl calibrate show",
        ),
        _fill_calibrate,
    ),
    Verb(
        "rt",
        "CPUs and real time: what was reached, what it gives",
        '"show" tells which level of CPU placement the model\'s process reached and why not\n'
        'more. "probe" measures how late this machine wakes a sleeping thread: plain, pinned to\n'
        "a CPU, FIFO (where permitted) and both. As root the pinned ones run in the partition of\n"
        "stoker.slice, if there is one, else on a CPU that others use too; the output says which.\n"
        "It needs no agent and no package, and uses cyclictest where it is installed.",
        (
            "stokerctl rt",
            "stokerctl rt probe --seconds 60",
            "sudo stokerctl --json rt probe --tool own",
        ),
        _fill_rt,
    ),
)

PAST: Final = (
    Verb(
        "bench",
        "what a model costs on this device",
        "Load time, prefill, first token, decode, time between tokens, memory, power, energy a\n"
        "token and temperature, through the door that programs use; with --text its perplexity.\n"
        "Two models, or a result kept with --save, stand side by side. Only administrators may\n"
        "name a model that does not serve.",
        (
            "stokerctl bench",
            "stokerctl bench --save before.json",
            "stokerctl bench --against before.json --plot change.png",
            "sudo stokerctl bench --model smollm2 --model tiny --text sample.txt",
        ),
        _fill_bench,
    ),
    Verb(
        "top",
        "the agent live, once a second",
        "Tokens a second, temperature against the wall, cap and threads, memory, who waits and\n"
        "who runs, an update's progress, and what happened in the last hour. q or Ctrl-C leaves.\n"
        "With --json a line a look.",
        (
            "stokerctl top",
            "stokerctl top --seconds 5",
            "stokerctl --json top --count 1",
        ),
        _fill_top,
    ),
    Verb(
        "report",
        "the device's past on one page",
        "One HTML page of the last day (or --hours): how long tokens let their readers wait, as a\n"
        "heat map with P50 and P99, temperature and wall, clock caps, tokens a second, updates\n"
        "and restarts. It needs no network to be read. With --json the numbers.",
        (
            "stokerctl report --html report.html",
            "stokerctl report --html week.html --hours 168",
            "stokerctl --json report --hours 1",
        ),
        _fill_report,
    ),
)

UPDATES: Final = (
    Verb(
        "update",
        "signed updates of the model",
        "Signed updates of models, adapters, llama.cpp's libraries and policies: list what is\n"
        "installed and under way, check the configured sources, inspect or install a bundle (a\n"
        "folder, such as a USB stick, or one file) or, without one, what the last check found, go\n"
        "back to the set before, confirm one that waits for it, cancel, history, or hold updates\n"
        "back until Ctrl-C. Looking is for everyone, the rest for root and group stoker-admin.",
        (
            "stokerctl update",
            "sudo stokerctl update inspect /media/usb/bundle",
            "sudo stokerctl update install /media/usb/bundle",
            "sudo stokerctl update install chat-2.bundle",
            "sudo stokerctl update check && sudo stokerctl update install",
            "sudo stokerctl update rollback",
            "stokerctl update history --limit 10",
        ),
        _fill_update,
    ),
)

FLEET: Final = (
    Verb(
        "fleet",
        "the connection to a fleet's broker",
        "The connection to a fleet's broker on one screen: state, groups, desired state, outbox\n"
        'and what is wrong. "test" tries the way there step by step: name, TCP, TLS, login and\n'
        'rights. "commands" lists what the fleet has asked for. "enroll" makes a new key on this\n'
        'device and prints the request for its certificate; "adopt" takes the signed one into use\n'
        "once the broker has let us in with it. test, enroll and adopt are for root and group\n"
        "stoker-admin.",
        (
            "stokerctl fleet",
            "sudo stokerctl fleet test",
            "stokerctl --json fleet commands",
            "sudo stokerctl fleet enroll > dev-1.csr",
            "sudo stokerctl fleet adopt dev-1.pem",
        ),
        _fill_fleet,
    ),
)
