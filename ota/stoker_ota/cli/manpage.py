"""stoker-ota(1), made from the command line itself: ``python -m stoker_ota.cli.manpage``.

A test compares its output with docs/man/stoker-ota.1, so that the page cannot drift.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

from stoker_ota import __version__
from stoker_ota.cli import arguments, completion, exit_status, recipe_words

_HEAD: Final = """\
.\\" Made by python -m stoker_ota.cli.manpage from the command line's own description.
.TH STOKER\\-OTA 1 "" "stoker @VERSION@" "User commands"
.SH NAME
stoker\\-ota \\- make and check updates for devices that run stokerd
.SH SYNOPSIS
.B stoker\\-ota
.I COMMAND
.RI [ VERB ]
.RI [ ARGUMENT ...]
.SH DESCRIPTION
.B stoker\\-ota
runs on the build host. It needs neither a device nor llama.cpp.
.PP
A file that is written appears under its name only when it is whole; until then it is
.IR NAME .part ,
and one process at a time may make it. Progress is shown on standard error if that is a terminal."""

_RECIPE: Final = """\
What goes into one manifest, in TOML. Sizes and hashes are measured, not written. Everything but
.BR deployment_id ", " version " and " artifacts
may be left out."""

_TAIL: Final = """\
.SH NOTES
.B \\-\\-json
prints one JSON object; after an error it has the member
.B error
with
.BR code ", " message " and " hint .
.SH SEE ALSO
.BR stokerctl (1),
.BR stokerd (8),
.BR bspatch (1)"""


def page() -> str:
    """The page as roff."""
    found = completion.commands_of(arguments.build())
    lines = [_HEAD.replace("@VERSION@", __version__), ".SH OPTIONS", *_options(found[""])]
    lines.append(".SH COMMANDS")
    for command in arguments.COMMANDS:
        words = " ".join(command.words)
        lines += [".SS " + _escape(words), _escape(command.text)]
        lines += _options(found[words])
        lines += [".PP", "Examples:", ".PP", ".RS", ".nf"]
        lines += [*map(_escape, command.examples), ".fi", ".RE"]
    lines += [".SH RECIPE", _RECIPE, ".PP", ".nf", _escape(recipe_words.EXAMPLE.rstrip()), ".fi"]
    lines.append(".SH EXIT STATUS")
    for status, meaning in exit_status.meanings():
        lines += [".TP", f".B {status}", _escape(meaning)]
    return "\n".join([*lines, _TAIL]) + "\n"


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in completion.actions(parser):
        names = ", ".join(f"\\fB{_escape(name)}\\fR" for name in action.option_strings)
        metavar = action.metavar or ("|".join(map(str, action.choices)) if action.choices else "")
        value = f"\\fI{_escape(str(metavar))}\\fR" if metavar else ""
        yield from (".TP", f"{names} {value}".strip(), _escape(action.help or ""))


def _escape(text: str) -> str:
    lines = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...").split("\n")
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in lines)


if __name__ == "__main__":
    print(page(), end="")
