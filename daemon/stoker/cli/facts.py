"""The verbs that ask the agent one thing and print it: status, models, tokens, thermal, …"""

from __future__ import annotations

from argparse import Namespace
from functools import partial

from stoker import __version__
from stoker.cli import ask, heat_screens, screens
from stoker.cli.answer import patiently
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
        case "models" if args.action == "use":
            return _use(args, stoker, terminal)
        case "models":
            models = stoker.models()
            return models, screens.models(models, terminal)
        case "thermal" if args.action == "discover":
            found = stoker.discover_heat()
            return found, heat_screens.found(found, terminal)
        case "thermal":
            thermal = stoker.thermal()
            return thermal, screens.thermal(thermal, terminal)
        case "rt":
            placement = stoker.realtime()
            return placement, heat_screens.placement(placement, terminal)
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


def _use(args: Namespace, stoker: Stoker, terminal: Terminal) -> tuple[object, list[str]]:
    if not args.model:
        raise StokerClientError(
            "invalid-request", "cannot change the model: no name is given",
            hint="stokerctl models shows the names",
        )  # fmt: skip
    found = stoker.use_model(args.model)
    name, before = (terminal.clean(str(found.get(key, ""))) for key in ("model", "previous"))
    if name == before:
        return found, [f"Model {name} is in use already."]
    lines = [f"Model {name} is used now, instead of {before} ({found.get('took_s', 0.0):.1f} s)."]
    if found.get("preempted"):
        lines.append(f"  answers cut short: {found['preempted']}")
    return found, lines


def _tokens(args: Namespace, stoker: Stoker, terminal: Terminal) -> tuple[object, list[str]]:
    # Words win here: counting the tokens of both together would help nobody.
    text = " ".join(args.words) or ask.read_input(terminal, args.words)
    if not text:
        raise StokerClientError("invalid-request", "cannot count tokens: there is no text")
    if not args.ids:
        count = patiently(stoker, partial(stoker.count_tokens, text), {}, terminal)
        return {"count": count}, [str(count)]
    ids = patiently(stoker, partial(stoker.tokenize, text), {}, terminal)
    return {"count": len(ids), "ids": ids}, [str(len(ids)), " ".join(map(str, ids))]
