"""The verb ``chat``: a conversation at the terminal, or line by line from a pipe."""

from __future__ import annotations

import contextlib
import sys
from argparse import Namespace

from stoker.cli.answer import Writer, begin, options_of
from stoker.cli.conversation import Conversation, Leave, Say
from stoker.cli.failure import report
from stoker.cli.terminal import Terminal
from stoker_client import Options, Stoker, StokerClientError


def run(args: Namespace, terminal: Terminal) -> int:
    options = options_of(args)
    talk = Conversation(system=options.pop("system", ""))
    typed = sys.stdin.isatty() and terminal.out_is_tty
    with Stoker(args.bus) as stoker:
        if typed:
            _greet(stoker, terminal)
        while (line := _read(terminal, typed=typed)) is not None:
            match talk.take(line):
                case Leave():
                    break
                case Say(text):
                    terminal.line(terminal.paint(text, "dim"))
                case None:
                    pass
                case _:
                    status = _answer(stoker, talk, options, args, terminal)
                    if status and not typed:
                        return status
    return 0


def _greet(stoker: Stoker, terminal: Terminal) -> None:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (line editing and history for input())
    model = str(stoker.status().get("model") or "no model yet")
    terminal.line(terminal.paint(f"{terminal.clean(model)} — /help for help, Ctrl-D leaves", "dim"))


def _read(terminal: Terminal, *, typed: bool) -> str | None:
    """The next line; None at the end. Ctrl-C at the prompt only clears it."""
    if not typed:
        return sys.stdin.readline() or None
    # \1 and \2 tell readline what takes no room on the line.
    prompt = "\1\x1b[1m\2> \1\x1b[0m\2" if terminal.colour else "> "
    while True:
        try:
            return input(prompt)
        except KeyboardInterrupt:
            terminal.line()
        except EOFError:
            terminal.line()
            return None


def _answer(
    stoker: Stoker, talk: Conversation, options: Options, args: Namespace, terminal: Terminal
) -> int:
    writer = Writer(terminal, reasoning=args.reasoning)
    status = 0
    try:
        with begin(stoker, talk.messages(), options, terminal) as stream:
            writer.write(stream, stoker)
    except KeyboardInterrupt:
        if not sys.stdin.isatty():
            raise
        terminal.note("(stopped)")
    except StokerClientError as error:
        status = report(error, terminal)
        if error.code == "context-length-exceeded":
            terminal.note("  the conversation is too long for the model: /reset begins a new one")
    talk.answered(writer.answer.text)
    return status
