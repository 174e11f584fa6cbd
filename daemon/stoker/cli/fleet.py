"""The verb ``fleet``: the connection to the broker, its commands, and a test of the way there."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from stoker.cli import screens
from stoker.cli.failure import why
from stoker.cli.terminal import Terminal
from stoker_client import Stoker, StokerClientError
from stoker_client.bus import plain

FAILED_STATUS: Final = 69  # as unavailable in the table of errors
Facts = Mapping[str, Any]
_MARKS: Final = {"ok": ("ok", "green"), "failed": ("FAILED", "red")}
_STATES: Final = {"online": "green", "waiting": "yellow", "connecting": "yellow"}


def run(args: Namespace, terminal: Terminal) -> int:
    with Stoker(args.bus) as stoker:
        match args.action:
            case "test":
                return _test(stoker.fleet.test(), terminal)
            case "enroll":
                terminal.write(stoker.fleet.enroll())
            case "adopt":
                stoker.fleet.adopt(_certificate(args.file))
                terminal.note("The broker lets us in with it; it is used from now on.")
            case "commands":
                _commands(stoker.fleet.commands(), terminal)
            case _:
                _status(stoker.fleet.facts(), terminal)
    return 0


def _status(facts: Facts, terminal: Terminal) -> None:
    if terminal.as_json:
        terminal.json(plain(facts))
        return
    if facts["State"] == "off":
        terminal.line("No broker is configured: set broker in [fleet] of stoker.toml.")
        return
    for name, value in _rows(facts, terminal):
        terminal.line(terminal.clean(f"{name:<12}{value}"))


def _rows(facts: Facts, terminal: Terminal) -> list[tuple[str, str]]:
    state = str(facts["State"])
    protocol = {5: "MQTT 5", 4: "MQTT 3.1.1"}.get(int(facts["Protocol"]), "")
    code, why = facts["Problem"]
    waiting, size = facts["Outbox"]
    desired = ", ".join(f"{name} {version}" for name, version in sorted(facts["Desired"].items()))
    rows = [
        ("state", terminal.paint(state, _STATES.get(state, "red")) + (f": {why}" if why else "")),
        ("broker", " ".join(filter(None, (str(facts["Broker"]), protocol)))),
        ("device", f"{facts['Device']}, session {facts['Session']}"),
        ("groups", ", ".join(facts["Groups"]) or "none"),
        ("desired", (desired or "nothing yet") + (" (expired)" if facts["Stale"] else "")),
        ("outbox", f"{waiting} messages, {screens.size(int(size))}"
         + (f"; {facts['Dropped']} given up" if facts["Dropped"] else "")),
        ("commands", f"{facts['Commands']} answered; {facts['Forged']} messages not believed"),
    ]  # fmt: skip
    if facts["LastCommand"][0]:
        rows.append(("last", "{1} {2} ({0})".format(*facts["LastCommand"])))
    if facts["CertificateExpires"]:
        rows.append(("certificate", f"valid until {facts['CertificateExpires']}"))
    rows += [("warning", str(text)) for text in facts["Warnings"]]
    if code:
        rows.append(("hint", "stokerctl fleet test says what is wrong"))
    return rows


def _test(steps: Sequence[Facts], terminal: Terminal) -> int:
    failed = any(step["outcome"] == "failed" for step in steps)
    if terminal.as_json:
        terminal.json(list(steps))
        return FAILED_STATUS if failed else 0
    for step in steps:
        word, look = _MARKS.get(str(step["outcome"]), (str(step["outcome"]), "dim"))
        mark = terminal.paint(f"{word:<8}", look)
        terminal.line(terminal.clean(f"{step['name']:<12}") + mark + terminal.clean(step["text"]))
        if step["hint"]:
            terminal.line(terminal.clean(f"{'':<20}{step['hint']}"))
    return FAILED_STATUS if failed else 0


def _commands(found: Sequence[Facts], terminal: Terminal) -> None:
    if terminal.as_json:
        terminal.json(list(found))
        return
    rows = [("COMMAND", "STATE", "ISSUED", "ID", "")]
    for item in found:
        why = f"{item['code']} {item['text']}".strip()
        issued = str(item["issued"]) or "desired state"
        row = (str(item["command"]), str(item["state"]), issued, str(item["id"]), why)
        rows.append(tuple(terminal.clean(cell) for cell in row))  # type: ignore[arg-type]
    lines = screens.columns(rows) if found else ["Nothing was asked for yet."]
    terminal.write("".join(line.rstrip() + "\n" for line in lines))


def _certificate(path: str | None) -> str:
    if not path:
        raise StokerClientError("invalid-request", "cannot adopt: which certificate?")
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, ValueError) as fault:
        raise StokerClientError("file-unreadable", f"cannot read {path}: {why(fault)}") from fault
