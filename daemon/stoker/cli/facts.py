"""The verbs that ask the agent one thing and print it: status, models, tokens, thermal, …"""

from __future__ import annotations

from argparse import Namespace

from stoker import __version__
from stoker.cli import ask, screens
from stoker.cli.terminal import Terminal
from stoker_client import Stoker, StokerClientError


def run(args: Namespace, terminal: Terminal) -> int:
    with Stoker(args.bus) as stoker:
        value, lines = _facts(args, stoker, terminal)
    if terminal.as_json:
        terminal.json(value)
    else:
        terminal.write("".join(line + "\n" for line in lines))
    return 0


def _facts(args: Namespace, stoker: Stoker, terminal: Terminal) -> tuple[object, list[str]]:
    """(value for ``--json``, lines for people)."""
    match args.verb:
        case "status":
            status = stoker.status()
            return status, screens.status(status, terminal)
        case "models":
            models = stoker.models()
            return models, screens.models(models, terminal)
        case "thermal":
            thermal = stoker.thermal()
            return thermal, screens.thermal(thermal, terminal)
        case "tokens":
            return _tokens(args, stoker, terminal)
        case "version":
            agent = str(stoker.status().get("version", ""))
            return (
                {"stokerctl": __version__, "agent": agent},
                [f"stokerctl {__version__}", f"stokerd {terminal.clean(agent)}"],
            )
        case "reload":
            keys = stoker.reload()
            line = "The configuration was read again."
            late = [f"  takes effect after a restart: {key}" for key in keys]
            return {"restart_needed": keys}, [line, *late]
        case "restart-runner":
            stoker.restart_runner()
            return {"restarted": True}, ["The runner was started again."]
    raise AssertionError(args.verb)


def _tokens(args: Namespace, stoker: Stoker, terminal: Terminal) -> tuple[object, list[str]]:
    # Words win here: counting the tokens of both together would help nobody.
    text = " ".join(args.words) or ask.read_input(terminal, args.words)
    if not text:
        raise StokerClientError("invalid-request", "cannot count tokens: there is no text")
    if not args.ids:
        count = stoker.count_tokens(text)
        return {"count": count}, [str(count)]
    ids = stoker.tokenize(text)
    return {"count": len(ids), "ids": ids}, [str(len(ids)), " ".join(map(str, ids))]
