"""The commands and options of stoker-ota, as argparse knows them.

The man page and the bash completion are made from this. It parses words and reads nothing else.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from stoker_ota import __version__
from stoker_ota.cli import (
    authoring_words,
    campaign_words,
    exit_status,
    fleet_words,
    publish_words,
)
from stoker_ota.cli.command import Command
from stoker_ota.core import word_order
from stoker_ota.units import KIB, MIB

HELP_WIDTH: Final = 88
DESCRIPTION: Final = """\
Make and check what devices that run stokerd are updated with.
Runs on the build host; it needs neither a device nor llama.cpp."""


class Parser(argparse.ArgumentParser):
    """argparse with one help width and sysexits' status for wrong words."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", _formatter)
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(exit_status.USAGE, f"{self.prog}: {message}\n")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        words = sys.argv[1:] if args is None else args
        if self._subparsers is None:  # a command's: else its options would come before it
            words = word_order.gathered(self, words)
        return super().parse_known_args(words, namespace)


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=26, width=HELP_WIDTH)


def build() -> Parser:
    """The whole command line."""
    parser = Parser(prog="stoker-ota", description=DESCRIPTION, epilog=_epilog())
    parser.add_argument(
        "--version", action="version", version=f"stoker-ota {__version__}",
        help="show the version and exit",
    )  # fmt: skip
    top = _verbs(parser, "commands", "COMMAND", "command")
    groups: dict[str, Any] = {}
    for command in COMMANDS:
        where = top
        if len(command.words) > 1:
            group = command.words[0]
            if group not in groups:
                sub = top.add_parser(group, help=GROUPS[group], description=GROUPS[group])
                groups[group] = _verbs(sub, "verbs", "VERB", "verb")
            where = groups[group]
        _add(where, command)
    return parser


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Exits with 0 after --help and with 64 when the words make no sense."""
    return build().parse_args(words)


def _verbs(parser: argparse.ArgumentParser, title: str, metavar: str, dest: str) -> Any:
    return parser.add_subparsers(
        title=title, dest=dest, metavar=metavar, parser_class=Parser, required=True
    )


def _add(where: Any, command: Command) -> None:
    examples = "examples:\n" + "\n".join(f"  {line}" for line in command.examples)
    sub = where.add_parser(
        command.words[-1], help=command.summary, description=command.text, epilog=examples
    )
    command.fill(sub)
    sub.add_argument("--json", action="store_true", help="print JSON for programs")


def _epilog() -> str:
    lines = [f"  {status:<4}{meaning}" for status, meaning in exit_status.meanings()]
    return "exit status:\n" + "\n".join(lines)


def _fill_make(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("old", metavar="OLD", type=Path, help="the file that devices have")
    add("new", metavar="NEW", type=Path, help="the file that they shall get")
    add("-o", "--output", metavar="DELTA", type=Path, required=True, help="the delta to write")
    add("--codec", choices=("smallest", "zstd", "bz2"), default="smallest",
        help="smallest of both per window (default), or one: zstd is applied faster")  # fmt: skip
    add("--level", metavar="N", type=int, default=12, help="of zstd, 1 to 19 (default 12)")
    add("--window", metavar="SIZE", type=_size, default=MIB,
        help="4K to 4M; a power cut loses at most one (default 1M)")  # fmt: skip
    add("--jobs", metavar="N", type=_count, default=os.cpu_count() or 1,
        help="processes (default: one a core)")  # fmt: skip
    add("--max-ratio", metavar="R", type=_ratio, default=0.6,
        help="refuse a delta larger than R of the whole file (default 0.6)")  # fmt: skip
    add(
        "--bspatch",
        action="store_true",
        help="only windows that bspatch applies: larger; see stoker-ota delta inspect --export",
    )
    add("--plain", action="store_true", help="do not look for tensors in GGUF files")
    add("--no-proof", action="store_true", help="do not apply the delta to prove it")
    _add_limit(
        parser, "prove the delta in a process with so much memory (default: 64 for 1M windows)"
    )


def _fill_inspect(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("delta", metavar="DELTA", type=Path, help="the delta")
    add("--windows", action="store_true", help="list every window")
    add("--export", metavar="N", type=_index, help="write window N as files for bspatch")
    add("--source", metavar="OLD", type=Path, help="the source, for --export")
    add("--directory", metavar="DIR", type=Path, default=Path(), help="where --export writes")


def _fill_apply(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("delta", metavar="DELTA", type=Path, help="the delta")
    add("old", metavar="OLD", type=Path, help="the file it was made from")
    add("-o", "--output", metavar="NEW", type=Path, required=True, help="the file to make")
    _add_limit(parser, "use at most so much memory")


def _fill_verify(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("delta", metavar="DELTA", type=Path, help="the delta")
    add("old", metavar="OLD", type=Path, nargs="?", help="the file it was made from")
    _add_limit(parser, "use at most so much memory")


def _fill_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", nargs="?", choices=("bash",), default="bash", help="the shell")


def _add_limit(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--memory-limit", metavar="MIB", type=_count, help=text)


def _size(word: str) -> int:
    match = re.fullmatch(r"(\d{1,9})([KkMm]?)", word)
    if not match:
        raise argparse.ArgumentTypeError(f"{word} is not a size such as 512K or 1M")
    return int(match[1]) * {"": 1, "K": KIB, "M": MIB}[match[2].upper()]


def _count(word: str) -> int:
    if not re.fullmatch(r"\d{1,6}", word) or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word} is not a count")
    return int(word)


def _index(word: str) -> int:
    if not re.fullmatch(r"\d{1,6}", word):
        raise argparse.ArgumentTypeError(f"{word} is not a window's number")
    return int(word)


def _ratio(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = 0.0
    if not 0 < value <= 2:
        raise argparse.ArgumentTypeError(f"{word} is not a ratio from 0 to 2")
    return value


GROUPS: Final = {
    "delta": "small files that turn an old artifact into a new one",
    **authoring_words.GROUPS,
    **fleet_words.GROUPS,
    **campaign_words.GROUPS,
}

COMMANDS: Final[tuple[Command, ...]] = (
    Command(
        ("delta", "make"),
        "make a delta from two files",
        "Make the delta that turns OLD into NEW, on all cores, and prove it by applying it in a\n"
        "process with little memory. Tensors of GGUF files are paired by name and shape wherever\n"
        "they moved. The same inputs and options give the same bytes.",
        (
            "stoker-ota delta make v1.gguf v2.gguf -o v1-v2.delta",
            "stoker-ota delta make --codec zstd --level 19 v1.gguf v2.gguf -o v1-v2.delta",
            "stoker-ota delta make --window 4M libs-1.tar libs-2.tar -o libs.delta",
        ),
        _fill_make,
    ),
    Command(
        ("delta", "inspect"),
        "what a delta holds",
        "What a delta holds: the files it is for, its windows and how each is made. --export\n"
        "writes one window as N.source and N.patch; bspatch makes N.target of them.",
        (
            "stoker-ota delta inspect v1-v2.delta",
            "stoker-ota delta inspect --json --windows v1-v2.delta",
            "stoker-ota delta inspect --export 3 --source v1.gguf v1-v2.delta",
        ),
        _fill_inspect,
    ),
    Command(
        ("delta", "apply"),
        "make the new file from the old one",
        "Make NEW from OLD, which must be exactly the file the delta was made from. NEW appears\n"
        "when it is whole, verified and on the disk. After an interruption the same command goes\n"
        "on where it was.",
        ("stoker-ota delta apply v1-v2.delta v1.gguf -o v2.gguf",),
        _fill_apply,
    ),
    Command(
        ("delta", "verify"),
        "check a delta, with OLD by applying it in memory",
        "Check index and payloads of a delta. With OLD every window is also applied and the whole\n"
        "result hashed; nothing is written.",
        (
            "stoker-ota delta verify v1-v2.delta",
            "stoker-ota delta verify --memory-limit 64 v1-v2.delta v1.gguf",
        ),
        _fill_verify,
    ),
    *authoring_words.COMMANDS,
    *publish_words.COMMANDS,
    *fleet_words.COMMANDS,
    *campaign_words.COMMANDS,
    Command(
        ("completion",),
        "print the completion script for bash",
        "Print the completion script for bash.",
        ("source <(stoker-ota completion)",),
        _fill_completion,
    ),
)
