"""The verb ``sessions``: conversations that the agent keeps, listed, shown, exported, deleted."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any, Final

from stoker.cli import screens
from stoker.cli.terminal import Terminal
from stoker_client import Session, Stoker, StokerClientError

_SHORTEST_ID: Final = 4  # of the begin of an id
Facts = Mapping[str, Any]


def run(args: Namespace, terminal: Terminal) -> int:
    if args.action == "list":
        return print_list(args, terminal)
    if not args.session:
        raise StokerClientError(
            "invalid-request",
            f"cannot {args.action} a conversation: which one?",
            hint="stokerctl sessions lists them",
        )
    with Stoker(args.bus) as stoker:
        # Administrators delete others' conversations by id; titles are their owners'.
        known = stoker.sessions()
        key = find(args.session, known if args.action == "delete" else own(known))
        session = stoker.session(key)
        match args.action:
            case "show":
                _show(session, terminal)
            case "export":
                terminal.write(session.export() + "\n")
            case "delete":
                session.delete()
                if terminal.as_json:
                    terminal.json({"deleted": key})
                else:
                    terminal.line(f"Deleted {key}.")
    return 0


def print_list(args: Namespace, terminal: Terminal) -> int:
    with Stoker(args.bus) as stoker:
        found = stoker.sessions()
    everyone = getattr(args, "all", False)
    shown = found if everyone else own(found)
    if terminal.as_json:
        terminal.json(shown)
    else:
        lines = listing(shown, terminal, time.time(), everyone=everyone)
        terminal.write("".join(line + "\n" for line in lines))
    return 0


def own(found: Sequence[Facts]) -> list[Facts]:
    """Without those that only an administrator sees."""
    return [item for item in found if item.get("uid") == os.geteuid()]


def find(name: str, found: Sequence[Facts], *, missing_ok: bool = False) -> str:
    """The id meant by a title, an id or the begin of one; the latest used of equal titles.

    not-found, or "" if that is fine; invalid-request when the begin fits several.
    """
    for item in found:
        if name and name in (item.get("id"), item.get("title")):
            return str(item["id"])
    begins = [str(item["id"]) for item in found if str(item["id"]).startswith(name)]
    if len(name) < _SHORTEST_ID or not begins:
        if missing_ok:
            return ""
        raise StokerClientError(
            "not-found",
            f"cannot find a conversation named {name!r}",
            hint="stokerctl sessions lists them",
        )
    if len(begins) > 1:
        raise StokerClientError("invalid-request", f"{len(begins)} ids begin with {name}")
    return begins[0]


def listing(
    found: Sequence[Facts], terminal: Terminal, now_s: float, *, everyone: bool = False
) -> list[str]:
    """A line for each conversation."""
    if not found:
        return ["No conversations are kept. stokerctl chat --new begins one."]
    rows = [("ID", "TURNS", "SIZE", "LAST USED", *(("USER",) if everyone else ()), "TITLE")]
    for item in found:
        ago = max(0.0, now_s - float(item.get("last_used", 0)))
        rows.append(
            (
                str(item.get("id", ""))[:8],
                str(item.get("turns", 0)),
                screens.size(int(item.get("bytes", 0))),
                f"{screens.span(ago)} ago",
                *((str(item.get("uid", "")),) if everyone else ()),
                terminal.clean(str(item.get("title", ""))),
            )
        )
    return screens.columns(rows)


def _show(session: Session, terminal: Terminal) -> None:
    if terminal.as_json:
        terminal.json({"facts": session.facts(), "turns": list(session.turns())})
        return
    facts = session.facts()
    if facts.get("Summary"):
        told = f"(summary up to turn {facts['SummaryUpTo']}: {terminal.clean(facts['Summary'])})"
        terminal.line(terminal.paint(told, "dim"))
        terminal.line()
    for turn in session.turns():
        terminal.line(terminal.paint("> " + terminal.clean(str(turn["question"])), "bold"))
        if turn["answer"]:
            terminal.line(terminal.clean(str(turn["answer"])))
        if turn["state"] != "done":
            why = f": {turn['error_code']}" if turn["error_code"] else ""
            terminal.line(terminal.paint(f"({turn['state']}{why})", "dim"))
        terminal.line()
