"""The verb ``chat``: a conversation at the terminal, or line by line from a pipe."""

from __future__ import annotations

import contextlib
import sys
from argparse import Namespace
from functools import partial

from stoker.cli import sessions
from stoker.cli.answer import Writer, options_of, patiently
from stoker.cli.conversation import Conversation, Leave, Say
from stoker.cli.failure import report
from stoker.cli.terminal import Terminal
from stoker_client import Options, Session, Settings, Stoker, StokerClientError, Stream


def run(args: Namespace, terminal: Terminal) -> int:
    if args.list:
        return sessions.print_list(args, terminal)
    options = options_of(args)
    talk = Conversation(system=options.pop("system", ""))
    typed = sys.stdin.isatty() and terminal.out_is_tty
    with Stoker(args.bus) as stoker:
        session = _session(args, talk, stoker)
        if typed:
            _greet(stoker, terminal)
            if session is not None:
                terminal.line(terminal.paint(f"kept as {session.id}", "dim"))
        while (line := _read(terminal, typed=typed)) is not None:
            match talk.take(line):
                case Leave():
                    break
                case Say(text):
                    terminal.line(terminal.paint(text, "dim"))
                case None:
                    pass
                case _:
                    status = _answer(stoker, talk, session, options, args, terminal)
                    if status and not typed:
                        return status
    return 0


def _session(args: Namespace, talk: Conversation, stoker: Stoker) -> Session | None:
    """The kept conversation to talk in; None = the agent keeps nothing."""
    if args.session is None and not args.new:
        return None
    talk.kept = True
    settings: Settings = {"system": talk.system} if talk.system else {}
    if args.summary:
        settings["summary"] = args.summary
    if args.new:
        if args.session:
            settings["title"] = args.session
        session = stoker.session(**settings)
    else:
        key = sessions.find(args.session, sessions.own(stoker.sessions()), missing_ok=True)
        if not key:
            settings["title"] = args.session
        session = stoker.session(key or None, **settings)
    talk.system = talk.sent_system = str(session.facts().get("System", ""))
    return session


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


def _start(stoker: Stoker, talk: Conversation, session: Session | None, options: Options) -> Stream:
    if session is None:
        return stoker.stream(talk.messages(), **options)
    if talk.system != talk.sent_system:
        session.configure(system=talk.system)
        talk.sent_system = talk.system
    return session.stream(talk.question, **options)


def _answer(
    stoker: Stoker,
    talk: Conversation,
    session: Session | None,
    options: Options,
    args: Namespace,
    terminal: Terminal,
) -> int:
    writer = Writer(terminal, reasoning=args.reasoning)
    status = 0
    try:
        start = partial(_start, stoker, talk, session, options)
        with patiently(stoker, start, options, terminal) as stream:
            writer.write(stream, stoker)
        omitted = writer.answer.omitted_turns
        if omitted and terminal.err_is_tty:
            turns = "turn was" if omitted == 1 else "turns were"
            terminal.note(f"({omitted} earlier {turns} left out)")
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
