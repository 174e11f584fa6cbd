"""stoker-ota: from the command line to a command, and from an error to an exit status."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from io import TextIOWrapper

from stoker_ota.cli import arguments, exit_status
from stoker_ota.cli.console import Console
from stoker_ota.errors import NoMemory, OtaError


def entry() -> int:
    """What the program ``stoker-ota`` calls."""
    return run(sys.argv[1:])


def run(words: Sequence[str]) -> int:
    """One command line; returns the exit status. Never raises, except what a bug raises."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        args = arguments.parse(words)
    except SystemExit as leaving:  # argparse, after --help or a wrong word
        return leaving.code if isinstance(leaving.code, int) else 0
    console = Console(as_json=args.json)
    try:
        _command(args, console)
        sys.stdout.flush()
        return 0
    except OtaError as error:
        return _failed(error, console)
    except MemoryError:
        return _failed(NoMemory("cannot go on: there is no more memory"), console)
    except KeyboardInterrupt:
        return exit_status.INTERRUPT
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_status.PIPE
    except OSError as error:  # drivers raise typed errors: this is standard output
        print(f"stoker-ota: cannot write the output: {error.strerror}", file=sys.stderr)
        return exit_status.OUTPUT


def _failed(error: OtaError, console: Console) -> int:
    if console.as_json:
        console.json({"error": error.record()})
    else:
        console.note(f"stoker-ota: {error.message}")
        if error.hint:
            console.note(f"  hint: {error.hint}")
    return exit_status.of(error.code)


def _command(args: Namespace, console: Console) -> None:
    match args.command:
        case "completion":
            from stoker_ota.cli import completion

            print(completion.bash(), end="")
        case "delta":
            from stoker_ota.cli import delta

            delta.run(args, console)
        case "publish" | "unpublish":  # they import paho-mqtt
            from stoker_ota.cli import publishing

            run = publishing.publish if args.command == "publish" else publishing.unpublish
            run(args, console)
        case "command" | "desired" | "device":
            from stoker_ota.cli import fleet

            fleet.run(args, console)
        case "campaign":
            from stoker_ota.cli import campaign

            campaign.run(args, console)
        case _:  # they import cryptography, which the others do without
            from stoker_ota.cli import authoring

            authoring.run(args, console)


if __name__ == "__main__":
    sys.exit(entry())
