"""stokerctl: from the command line to a verb, and from an error to an exit status.

Verbs are imported when they are used, GLib and rich even later: ``stokerctl version``
must feel instant.
"""

from __future__ import annotations

import importlib
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Final

from stoker.cli import arguments
from stoker.cli.failure import report
from stoker.cli.terminal import Terminal
from stoker_client.errors import StokerClientError

PIPE_STATUS: Final = 141
OUTPUT_STATUS: Final = 74  # EX_IOERR
INTERRUPT_STATUS: Final = 130
WITH_A_MODULE: Final = frozenset(
    {"ask", "bench", "calibrate", "chat", "embed", "fleet", "report", "sessions", "top", "update"}
)
"""Verbs whose ``run`` is in the module of their name; ``facts`` has the others."""


def entry() -> int:
    """What the program ``stokerctl`` calls."""
    status = run(sys.argv[1:])
    if status == INTERRUPT_STATUS and sys.stderr.isatty():
        print(file=sys.stderr)  # the shell's prompt shall not stand behind ^C
    return status


def run(words: Sequence[str]) -> int:
    """One command line; returns the exit status. Never raises, except what a bug raises."""
    _prepare_output()
    terminal = Terminal()
    try:
        try:
            args = arguments.parse(words)
            terminal = Terminal(colour=not args.no_color, as_json=args.json)
            status = _verb(args, terminal)
        except SystemExit as leaving:  # argparse, after --help or a wrong word
            status = leaving.code if isinstance(leaving.code, int) else 0
        except StokerClientError as error:
            status = report(error, terminal)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return INTERRUPT_STATUS
    except BrokenPipeError:
        _abandon_output()
        return PIPE_STATUS
    except OSError as error:  # a full disk, a closed descriptor
        print(f"stokerctl: cannot write the output: {error.strerror}", file=sys.stderr)
        _abandon_output()
        return OUTPUT_STATUS


def _prepare_output() -> None:
    """Streams that can take any text, even if they were closed or have a small alphabet."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # It lives as long as the program.
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _abandon_output() -> None:
    """Python flushes once more while it ends: give it a place that takes everything."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _verb(args: Namespace, terminal: Terminal) -> int:
    if args.verb == "version" and not args.agent:
        from stoker import __version__

        if args.json:
            terminal.json({"stokerctl": __version__})
        else:
            terminal.line(f"stokerctl {__version__}")
        return 0
    if args.verb == "completion":
        from stoker.cli import completion

        terminal.write(completion.bash())
        return 0
    name = args.verb if args.verb in WITH_A_MODULE else "facts"
    if (args.verb, getattr(args, "action", "")) == ("rt", "probe"):
        name = "rt_probe"
    status: int = importlib.import_module(f"stoker.cli.{name}").run(args, terminal)
    return status


if __name__ == "__main__":
    sys.exit(entry())
