"""The verb ``ask``: one question from the command line, a file or standard input, one answer."""

from __future__ import annotations

import select
import stat
import sys
from argparse import Namespace
from collections.abc import Sequence
from os import fstat, read
from pathlib import Path
from typing import Final

from stoker.cli.answer import Writer, begin, options_of, stats
from stoker.cli.terminal import Terminal
from stoker_client import Stoker, StokerClientError

MAX_INPUT_BYTES: Final = 16 << 20
_PATIENCE_S: Final = 3.0


def run(args: Namespace, terminal: Terminal) -> int:
    words = [] if args.words == ["-"] else args.words  # as other programs say "standard input"
    if args.file is not None:
        given = read_file(args.file)
    else:
        given = "" if args.no_stdin else read_input(terminal, words)
    question = compose(words, given)
    if not question:
        raise StokerClientError(
            "invalid-request",
            "cannot ask: there is no question",
            hint='stokerctl ask "Why is the sky blue?"',
        )
    options = options_of(args)
    with Stoker(args.bus) as stoker, begin(stoker, question, options, terminal) as stream:
        writer = Writer(terminal, reasoning=args.reasoning)
        answer = writer.write(stream, stoker)
    if args.stats:
        terminal.note(stats(answer.end))
    elif answer.end.finish_reason == "length" and terminal.err_is_tty:
        terminal.note("(cut at the token limit: --max-tokens raises it)")
    return 0


def compose(words: Sequence[str], given: str) -> str:
    """The words of the command line, then what standard input held."""
    question = " ".join(words)
    if not given.strip():
        return question
    return f"{question}\n\n{given}" if question else given


def read_input(terminal: Terminal, words: Sequence[str]) -> str:
    """Standard input if it is a file or a pipe; a terminal only if there are no words."""
    try:
        kind = fstat(0).st_mode
    except OSError:  # closed
        return ""
    piped = stat.S_ISFIFO(kind) or stat.S_ISREG(kind) or stat.S_ISSOCK(kind)
    if not piped and (words or not sys.stdin.isatty()):
        return ""
    if not piped:
        terminal.note("Type the question, then Ctrl-D:")
    elif not select.select([0], [], [], _PATIENCE_S)[0]:
        terminal.note("stokerctl: waiting for standard input (--no-stdin leaves it alone)")
    return _text(0, "standard input")


def read_file(name: str) -> str:
    """The text of a file."""
    try:
        with Path(name).open("rb", buffering=0) as file:
            return _text(file.fileno(), name)
    except OSError as fault:
        raise StokerClientError(
            "invalid-request", f"cannot read {name}: {fault.strerror}"
        ) from fault


def _text(fd: int, name: str) -> str:
    data = bytearray()
    while chunk := read(fd, 1 << 16):
        data += chunk
        if len(data) > MAX_INPUT_BYTES:
            raise StokerClientError(
                "request-too-large", f"cannot read {name}: more than {MAX_INPUT_BYTES >> 20} MiB"
            )
    try:
        return data.decode()
    except UnicodeDecodeError as fault:
        raise StokerClientError(
            "invalid-request",
            f"cannot read {name}: byte {fault.start} is not UTF-8",
            hint="iconv -t UTF-8 converts text",
        ) from fault
