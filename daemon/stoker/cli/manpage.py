"""stokerctl(1), made from the command line itself: ``python -m stoker.cli.manpage``.

A test compares its output with docs/man/stokerctl.1, so that the page cannot drift.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from stoker.cli import arguments, completion
from stoker.cli.verb import Verb

_HEAD: Final = """\
.\\" Made by python -m stoker.cli.manpage from the command line's own description.
.TH STOKERCTL 1 "" "stoker @VERSION@" "User commands"
.SH NAME
stokerctl \\- ask the language model of this device, and see how it is
.SH SYNOPSIS
.B stokerctl
.RI [ OPTION ...]
.I VERB
.RI [ ARGUMENT ...]
.SH DESCRIPTION
.B stokerctl
talks to
.BR stokerd (8)
over D\\-Bus and to nothing else. Every verb is one call that any other program can make too.
Answers are streamed: each piece is written when the model has made it. On a terminal,
reasoning is shown dim and control characters of the model are left out; a pipe gets the
answer alone, byte for byte.
.PP
Options that are given everywhere may stand before or after the verb."""

_TAIL: Final = """\
.SH ENVIRONMENT
.TP
.B STOKER_BUS_ADDRESS
the bus when
.B \\-\\-bus
is not given:
.BR system ,
.B session
or a D\\-Bus address
.TP
.B NO_COLOR
if set, no colours
.SH NOTES
.B ask
reads standard input when that is a pipe, a socket or a file. In a shell's
.B while read
loop it would swallow the loop's input: give
.B \\-\\-no\\-stdin
there.
.PP
.B \\-\\-json
prints one JSON object, or for
.B ask
one a line as they arrive:
.BR t " (text), " r " (reasoning), " p " (prompt read so far), and last " done " or " error .
.SH FILES
.TP
.I /etc/stoker/stoker.toml
the agent's configuration
.SH SEE ALSO
.BR stokerd (8),
.BR busctl (1),
.BR gdbus (1)"""


def page() -> str:
    """The page as roff."""
    statuses = arguments.exit_statuses()
    return render(_HEAD, arguments.build(), arguments.VERBS, statuses, _TAIL)


def render(
    head: str,
    parser: argparse.ArgumentParser,
    verbs: Iterable[Verb],
    statuses: Iterable[tuple[object, str]],
    tail: str,
) -> str:
    """Any program's page; ``head`` and ``tail`` are roff."""
    from stoker import __version__

    lines = [head.replace("@VERSION@", __version__), ".SH OPTIONS", *_options(parser, set())]
    lines.append(".SH VERBS")
    shared = {o for a in completion.actions(parser) for o in a.option_strings}
    subs: Mapping[str, argparse.ArgumentParser] = completion.verbs_of(parser)
    for verb in verbs:
        lines += [".SS " + escape(verb.name), escape(verb.text)]
        lines += _options(subs[verb.name], shared)
        lines += [".PP", "Examples:", ".PP", ".RS", ".nf"]
        lines += [*map(escape, verb.examples), ".fi", ".RE"]
    lines.append(".SH EXIT STATUS")
    for status, meaning in statuses:
        lines += [".TP", f".B {status}", escape(meaning)]
    return "\n".join([*lines, tail]) + "\n"


def _options(parser: argparse.ArgumentParser, hidden: set[str]) -> Iterator[str]:
    for action in completion.actions(parser):
        if not action.option_strings or hidden.intersection(action.option_strings):
            continue
        names = ", ".join(f"\\fB{escape(name)}\\fR" for name in action.option_strings)
        value = f" \\fI{action.metavar}\\fR" if action.metavar else ""
        yield from (".TP", names + value, escape(action.help or ""))


def escape(text: str) -> str:
    """Words as roff takes them."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...").split("\n")
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in lines)


if __name__ == "__main__":
    print(page(), end="")
