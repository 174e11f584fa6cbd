"""The verb ``update``: bundles looked into, installed, confirmed; sets gone back to; history."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any, Final

from stoker.cli import screens
from stoker.cli.bars import Bar
from stoker.cli.terminal import Terminal
from stoker_client import Stoker, StokerClientError
from stoker_client.bus import plain
from stoker_client.updates import Updates

POLL_S: Final = 0.2
NONE: Final = "/"
MIN_ETA_S: Final = 5
_TITLES: Final = {
    "preflight": "looking for room", "fetching": "fetching", "applying": "applying the delta",
    "verifying": "reading back", "staged": "ready to be tried", "activating": "trying the new set",
    "testing": "trying the new set", "committed": "keeping it", "rolling-back": "going back",
}  # fmt: skip
Facts = Mapping[str, Any]


def run(args: Namespace, terminal: Terminal) -> int:
    if args.action in ("inspect", "confirm") and not args.target:
        what = "deployment" if args.action == "confirm" else "folder"
        raise StokerClientError("invalid-request", f"cannot {args.action}: which {what}?")
    with Stoker(args.bus) as stoker:
        return _act(args, stoker.updates, terminal)


def _act(args: Namespace, updates: Updates, terminal: Terminal) -> int:
    match args.action:
        case "check":
            _print_listed(updates.check(), terminal)
        case "list":
            _list(updates, terminal)
        case "inspect":
            _print_listed(updates.inspect(args.target), terminal)
        case "install":
            name = args.deployment or ""
            if args.target:
                job = updates.install(args.target, name, force=args.force)
            else:
                job = updates.install_listed(name, force=args.force)
            _follow(updates, job, terminal, wait=not args.no_wait)
        case "rollback":
            _follow(updates, updates.rollback(), terminal, wait=not args.no_wait)
        case "cancel":
            _cancel(updates, terminal)
        case "confirm":
            updates.confirm(args.target)
            _tell(terminal, {"confirmed": args.target}, f"{args.target} is kept.")
        case "history":
            _history(updates.history(args.limit), terminal)
        case "inhibit":
            _inhibit(updates, args.target or "an administrator asked for it", terminal)
    return 0


def _follow(updates: Updates, job: str, terminal: Terminal, *, wait: bool) -> None:
    """A bar until the end; what failed is raised with its own code. Ctrl-C only stops looking."""
    bar = Bar(shown=terminal.err_is_tty and not terminal.as_json)
    said = ""
    try:
        while True:
            facts = updates.job(job)
            state, phase = str(facts["State"]), str(facts["Phase"])
            if state in ("done", "failed") or not wait:
                break
            total = int(facts["Total"])
            bar.update(_title(phase, int(facts["Eta"])), facts["Done"] / max(total, 1))
            if state == "waiting" and phase != said:
                said = phase
                terminal.note(f"it waits: {facts['Error'][1] or phase}")
            time.sleep(POLL_S)
    finally:
        bar.close()
    code, text = facts["Error"]
    if state == "failed":
        raise StokerClientError(str(code) or "internal", str(text) or "the update failed")
    told = plain({key: value for key, value in facts.items() if key != "Error"})
    name = f"{facts['Deployment']} {facts['Version']}"
    if state != "done":
        _tell(terminal, {"job": job, **told}, f"{name} is under way: stokerctl update list")
    elif facts["Kind"] == "rollback":
        _tell(terminal, {"job": job, **told}, "The set before is used again.")
    else:
        _tell(terminal, {"job": job, **told}, f"{name} is installed and used.")


def _title(phase: str, eta_s: int) -> str:
    title = _TITLES.get(phase, phase or "beginning")
    return title if eta_s < MIN_ETA_S else f"{title}, {eta_s // 60}:{eta_s % 60:02} left"


def _list(updates: Updates, terminal: Terminal) -> None:
    facts, found = updates.facts(), updates.deployments()
    if terminal.as_json:
        terminal.json({**plain(facts), "listed": found})
        return
    job = updates.job(str(facts["Job"])) if facts["Job"] != NONE else None
    lines = [f"set       {_set(facts['Current'])}", f"before    {_set(facts['Previous'])}"]
    if job is not None:
        lines.append(f"under way {job['Deployment']} {job['Version']}: {job['State']}, "
                     f"{job['Phase']} {job['Error'][1]}".rstrip())  # fmt: skip
    if facts["LastError"][0]:
        lines.append(f"failed    {facts['LastError'][0]}: {facts['LastError'][1]}")
    if facts["Frozen"]:
        lines.append("warning   the newest catalog has expired")
    if not facts["ClockTrusted"]:
        lines.append("clock     not synchronised: only newer versions are accepted")
    terminal.write("".join(terminal.clean(line) + "\n" for line in lines))
    if found:
        _print_listed(found, terminal)


def _set(number: int) -> str:
    return str(number) if number else "as the package brought it"


def _print_listed(found: Sequence[Facts], terminal: Terminal) -> None:
    if terminal.as_json:
        terminal.json(list(found))
        return
    rows = [("DEPLOYMENT", "VERSION", "STATE", "SIZE", "TO FETCH", "")]
    for item in found:
        fetch = int(item.get("wire_bytes", 0))
        rows.append(
            (
                terminal.clean(str(item.get("name", ""))),
                str(item.get("version", "")),
                str(item.get("state", "")),
                screens.size(int(item.get("size_bytes", 0))),
                screens.size(fetch) if fetch else "-",
                terminal.clean(str(item.get("reason", ""))),
            )
        )
    lines = screens.columns(rows) if found else ["Nothing is listed."]
    terminal.write("".join(line.rstrip() + "\n" for line in lines))


def _history(found: Sequence[Facts], terminal: Terminal) -> None:
    if terminal.as_json:
        terminal.json(list(found))
        return
    for item in found:
        if (item.get("what"), item.get("code")) == ("failed", "requested"):
            continue  # somebody wished to go back: "returned" tells it, and nothing failed
        named = item.get("deployment", "")
        name = f"{named} {item.get('version', '')}" if named else ""
        why = f"{item.get('code', '')} {item.get('reason', '')}".strip()
        line = f"{item.get('time', '')}  {item.get('what', ''):<12} {name:<20} {why}"
        terminal.line(terminal.clean(line.rstrip()))
    if not found:
        terminal.line("Nothing happened yet.")


def _cancel(updates: Updates, terminal: Terminal) -> None:
    job = str(updates.facts()["Job"])
    if job == NONE:
        raise StokerClientError("not-found", "cannot cancel: no update is under way")
    updates.cancel(job)
    _tell(terminal, {"cancelled": job}, "It is given up as soon as it can be.")


def _inhibit(updates: Updates, why: str, terminal: Terminal) -> None:
    """Holds updates back until Ctrl-C."""
    fd = updates.inhibit(f"stokerctl (pid {os.getpid()})", why)
    try:
        _tell(terminal, {"inhibited": True}, "Updates are held back until Ctrl-C.")
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                signal.pause()
    finally:
        os.close(fd)


def _tell(terminal: Terminal, facts: Facts, line: str) -> None:
    if terminal.as_json:
        terminal.json(dict(facts))
    else:
        terminal.line(terminal.clean(line))
