"""The verbs and options of stokerctl, as argparse knows them.

The man page, the bash completion and the README's help text are made from this or
compared with it. It parses words and reads nothing else.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from stoker.cli import device_words
from stoker.cli.verb import Verb
from stoker_ota.core import word_order

USAGE_STATUS: Final = 64  # as invalid-request in the table of errors
HELP_WIDTH: Final = 88

DESCRIPTION: Final = """\
Ask the language model of this device, and see how it is.
Talks to stokerd over D-Bus: the system bus, or the one in STOKER_BUS_ADDRESS."""


class Parser(argparse.ArgumentParser):
    """argparse with one help width, so that help can be compared, and sysexits' status."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", _formatter)
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USAGE_STATUS, f"{self.prog}: {message}\n")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        words = sys.argv[1:] if args is None else args
        if self._subparsers is None:  # a verb's: else the verb's options would come before it
            words = word_order.gathered(self, words)
        return super().parse_known_args(words, namespace)

    def format_help(self) -> str:
        if self.epilog is None:
            self.epilog = epilog()
        return super().format_help()


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=26, width=HELP_WIDTH)


def build() -> Parser:
    """The whole command line."""
    parser = Parser(prog="stokerctl", description=DESCRIPTION)
    _add_global(parser, absent=None)
    verbs = parser.add_subparsers(
        title="verbs", dest="verb", metavar="VERB", parser_class=Parser, required=True
    )
    for verb in VERBS:
        examples = "examples:\n" + "\n".join(f"  {line}" for line in verb.examples)
        sub = verbs.add_parser(verb.name, help=verb.summary, description=verb.text, epilog=examples)
        verb.fill(sub)
        # Global options may stand after the verb too; there they must not undo earlier ones.
        _add_global(sub, absent=argparse.SUPPRESS)
    return parser


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Exits with 0 after --help and with 64 when the words make no sense."""
    return build().parse_args(words)


def epilog() -> str:
    lines = [f"  {status:<4}{meaning}" for status, meaning in exit_statuses()]
    return "exit status:\n" + "\n".join(lines)


def exit_statuses() -> list[tuple[int, str]]:
    """Every exit status and the error codes behind it, from the one table of errors."""
    from stoker.api import errormap

    found: dict[int, list[str]] = {0: ["fine"]}
    for row in errormap.ROWS:
        found.setdefault(row.exit_status, []).append(row.code)
    found[USAGE_STATUS].append("wrong words on the command line")
    found[74].append("the output cannot be written")
    found[130].append("Ctrl-C")
    found[141] = ["the reader of the output went away"]
    return [(status, ", ".join(found[status])) for status in sorted(found)]


def _add_global(parser: argparse.ArgumentParser, absent: str | None) -> None:
    group = parser.add_argument_group("everywhere")
    off: Any = False if absent is None else absent
    group.add_argument("--json", action="store_true", default=off, help="print JSON for programs")
    group.add_argument(
        "--bus",
        metavar="BUS",
        default=absent,
        help="system, session or a D-Bus address (default: $STOKER_BUS_ADDRESS or system)",
    )
    group.add_argument("--no-color", action="store_true", default=off, help="no colours")


def _fill_ask(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", metavar="TEXT", nargs="*", help="the question")
    parser.add_argument(
        "-f", "--file", metavar="FILE", help="the question goes on with this file's text"
    )
    _add_answering(parser)
    add = parser.add_argument
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--schema", metavar="FILE", help="answer in JSON that follows this schema")
    shape.add_argument("--json-schema", metavar="JSON", help="the same, with the schema itself")
    shape.add_argument("--grammar", metavar="FILE", help="answer as this GBNF grammar allows")
    add("--reasoning-tokens", metavar="N", type=int, help="reason at most so long; 0 = not at all")
    add("--lora", metavar="NAME[=SCALE]", action="append", help="use an adapter (may be repeated)")
    add("--raw", action="store_true", help="no chat template: continue the text")
    parser.add_argument("--stats", action="store_true", help="tokens and times on standard error")
    parser.add_argument("--no-stdin", action="store_true", help="do not read standard input")


def _fill_chat(parser: argparse.ArgumentParser) -> None:
    _add_answering(parser)
    add = parser.add_argument
    add("--session", metavar="NAME", help="talk on in a kept conversation, or begin it")
    add("--new", action="store_true", help="begin a conversation that the agent keeps")
    add(
        "--summary",
        metavar="on|off",
        choices=("on", "off"),
        help="in a kept one: summarise what no longer goes along (the model reads that instead)",
    )
    add("--list", action="store_true", help="list kept conversations")


def _fill_sessions(parser: argparse.ArgumentParser) -> None:
    actions = ("list", "show", "export", "delete")
    parser.add_argument("action", nargs="?", choices=actions, default="list", help="what to do")
    parser.add_argument("session", metavar="NAME", nargs="?", help="title or id (or its begin)")
    parser.add_argument("--all", action="store_true", help="list other users' too (administrators)")


def _add_answering(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--system", metavar="TEXT", help="how to behave (system message)")
    add("--model", metavar="NAME", help="another model than the default")
    add("--max-tokens", metavar="N", type=int, help="stop after N tokens")
    add("--temperature", metavar="T", type=float, help="0 = always the likeliest token")
    add("--seed", metavar="N", type=int, help="the same seed gives the same answer")
    add("--stop", metavar="TEXT", action="append", help="stop before TEXT (may be repeated)")
    add("--timeout", metavar="SECONDS", type=device_words.seconds, help="give up after so long")
    add(
        "--class",
        metavar="CLASS",
        dest="job_class",
        choices=("interactive", "normal", "background"),
        help="interactive, normal or background (which waits for the others)",
    )
    add("--reasoning", action="store_true", help="show reasoning even where it is hidden")


def _fill_models(parser: argparse.ArgumentParser) -> None:
    actions = ("list", "use")
    parser.add_argument("action", nargs="?", choices=actions, default="list", help="what to do")
    parser.add_argument("model", metavar="NAME", nargs="?", help="the model to use, or its alias")


def _fill_tokens(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", metavar="TEXT", nargs="*", help="the text (or standard input)")
    parser.add_argument("--ids", action="store_true", help="print the token ids too")


def _fill_embed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("texts", metavar="TEXT", nargs="*", help="the texts (or lines of input)")


def _fill_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agent", action="store_true", help="ask the running agent for its own")


def _fill_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", nargs="?", choices=("bash",), default="bash", help="the shell")


VERBS: Final[tuple[Verb, ...]] = (
    Verb(
        "ask",
        "ask one question; the answer is streamed",
        "Ask one question. The answer appears as it is made; Ctrl-C stops it.\n"
        "Text on standard input, or in a file, is added below the question, or is the question.",
        (
            'stokerctl ask "Why is the sky blue?"',
            'cat report.txt | stokerctl ask "Summarise this text:"',
            'stokerctl ask -f report.txt "Summarise this text:"',
            'stokerctl ask --max-tokens 32 --seed 7 --temperature 0 "Name three rivers."',
            'stokerctl ask --schema person.json "Invent a person."',
            'stokerctl --json ask "Hello" | head -n 3',
        ),
        _fill_ask,
    ),
    Verb(
        "chat",
        "talk with the model",
        "Talk with the model. The conversation lives in this program and ends with it,\n"
        "unless --session or --new lets the agent keep it: then it can be continued later.\n"
        "/help shows the commands; Ctrl-C stops an answer, Ctrl-D leaves.",
        (
            "stokerctl chat",
            'stokerctl chat --system "Answer in one sentence."',
            "stokerctl chat --session garden",
        ),
        _fill_chat,
    ),
    Verb(
        "sessions",
        "conversations that the agent keeps",
        "Conversations that the agent keeps for you: list them, show one, export one as\n"
        "JSON, or delete one for good. NAME is a title, an id or the begin of an id.",
        (
            "stokerctl sessions",
            "stokerctl sessions show garden",
            "stokerctl sessions export garden > garden.json",
            "stokerctl sessions delete 3f9a",
        ),
        _fill_sessions,
    ),
    Verb(
        "status",
        "how the agent is, on one screen",
        "State, model, runner, jobs, heat and uptime of the agent on one screen.",
        ("stokerctl status", "stokerctl --json status"),
    ),
    Verb(
        "models",
        "the models the agent knows",
        'The models the agent knows, and why one of them is not used. "use" makes another\n'
        "one serve until the agent ends: running answers have some time to end, new questions\n"
        "wait, and if it cannot answer the old one is used again. Only root and group\n"
        "stoker-admin may do that.",
        ("stokerctl models", "sudo stokerctl models use smollm2"),
        _fill_models,
    ),
    Verb(
        "tokens",
        "count the tokens of a text",
        "Count the tokens of a text in the vocabulary of the loaded model.",
        ('stokerctl tokens "How long is this?"', "stokerctl tokens --ids < notes.txt"),
        _fill_tokens,
    ),
    Verb(
        "embed",
        "turn texts into vectors",
        "One vector for each text, as one JSON array a line. Without TEXT, each line of\n"
        "standard input is a text. Vectors have length 1: their product is their likeness.",
        ('stokerctl embed "a red apple" "a green pear"', "stokerctl embed < lines.txt"),
        _fill_embed,
    ),
    *device_words.HEAT_AND_TIME,
    *device_words.PAST,
    *device_words.UPDATES,
    *device_words.FLEET,
    Verb(
        "version",
        "the version of this program",
        "The version of this program; with --agent also that of the running agent.",
        ("stokerctl version", "stokerctl version --agent"),
        _fill_version,
    ),
    Verb(
        "reload",
        "read the configuration again (administrators)",
        "Let the agent read its configuration again. A wrong file changes nothing.\n"
        "Only root and group stoker-admin may do this.",
        ("sudo stokerctl reload",),
    ),
    Verb(
        "restart-runner",
        "start the model's process again (administrators)",
        "Stop the process that holds the model and start it again.\n"
        "Only root and group stoker-admin may do this.",
        ("sudo stokerctl restart-runner",),
    ),
    Verb(
        "completion",
        "print the completion script for bash",
        "Print the completion script for bash.",
        ("source <(stokerctl completion)",),
        _fill_completion,
    ),
)
