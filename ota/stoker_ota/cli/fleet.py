"""stoker-ota command, desired, device enroll: a fleet's operator at work."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from stoker_ota.cli import broker_words, desired
from stoker_ota.cli.console import Console
from stoker_ota.cli.fleet_keys import ROLE
from stoker_ota.cli.keyring import Keyring, moment, new_key
from stoker_ota.core import fleet_documents, fleet_orders, gate, strict_json
from stoker_ota.core.fields import MAX_VERSION
from stoker_ota.core.fleet_documents import Command, Target
from stoker_ota.core.topics import Topics
from stoker_ota.drivers import folders
from stoker_ota.errors import InvalidRequest, OtaError, Unavailable
from stoker_ota.services import authority, device_ca

AGAIN_S: Final = 5.0
MAX_RESULT_BYTES: Final = 120 << 10
RESULT_WORDS: Final = ("id", "state", "code", "detail")


def run(args: Namespace, console: Console) -> None:
    """One command. OtaError."""
    words = " ".join(part for part in (args.command, getattr(args, "verb", "")) if part)
    commands: dict[str, Callable[[Namespace, Console], None]] = {
        "command": command,
        "desired": lambda args, console: desired.run(args, console, _link),
        "device enroll": enroll,
    }
    commands[words](args, console)


def command(args: Namespace, console: Console) -> None:
    to = fleet_orders.target(args.device, args.group, args.label)
    ring, now = Keyring(args), moment(Namespace(now=""))
    signers = ring.signers(ROLE)  # a folder without keys is not begun by a sequence number
    made = fleet_orders.command(
        args.word, to, args.args,
        identity=fleet_orders.uuid7(time.time_ns() // 1_000_000,
                                    int.from_bytes(os.urandom(10), "big")),
        sequence=next_sequence(ring.folder), now=now, life_s=args.expires_s,
    )  # fmt: skip
    payload = fleet_documents.command_payload(made)
    fleet_documents.parse_command(payload)  # what a device would refuse is refused here
    data = authority.sign(fleet_documents.COMMAND_TYPE, payload, signers)
    if args.output is not None:
        folders.write_new(args.output, data)
        _said(console, {"command": made.id, "file": str(args.output)}, f"{args.output}: {made.id}")
        return
    if ring.has_trust:
        limit = fleet_documents.MAX_COMMAND_BYTES
        gate.open_signed(data, fleet_documents.COMMAND_TYPE, ROLE, ring.trust(), max_bytes=limit)
    _send(args, console, made, data)


def enroll(args: Namespace, console: Console) -> None:
    ring, now = Keyring(args), moment(args)
    Topics(args.root)  # before anything is made for it
    request = folders.read(args.request, 64 << 10)  # before an authority is founded for it
    if not (ring.folder / "keys" / f"{device_ca.NAME}.pem").exists():
        ring.add(device_ca.found(args.operator, now, new_key()))
        console.note(f"{ring.folder}/certificates/{device_ca.NAME}.pem: the broker's cafile")
    holder = ring.holder(device_ca.NAME)
    folders.write_new(args.output, device_ca.sign(request, args.device, holder, now, args.days))
    mosquitto = fleet_orders.mosquitto_rights(args.root)
    emqx = fleet_orders.emqx_rights(args.root)
    if console.as_json:
        facts = {"device": args.device, "certificate": str(args.output)}
        console.json({**facts, "mosquitto": mosquitto.split("\n"), "emqx": emqx.split("\n")})
        return
    console.line(f"{args.output}: {args.device}, {args.days} days")
    console.line("\nMosquitto, acl_file (with use_identity_as_username true):")
    console.line(mosquitto)
    console.line('\nEMQX, acl.conf (with peer_cert_as_username = "cn"):')
    console.line(emqx)


@dataclass
class Watch:
    """What has been heard of one command, by device."""

    topics: Topics
    identity: str
    states: dict[str, dict[str, Any]] = field(default_factory=dict)

    def hear(self, topic: str, payload: bytes) -> bool:
        """Whether it was news. Answers are the broker's word: they are shown, not obeyed."""
        device, leaf = self.topics.whose(topic)
        if leaf != "result":
            return False
        found = told_result(payload)
        if found is None or found.get("id") != self.identity:
            return False
        old = self.states.get(device)
        if old is not None and old["number"] >= found["number"]:
            return False
        self.states[device] = found
        return True

    @property
    def over(self) -> bool:
        return bool(self.states) and all(
            item.get("state") in fleet_orders.FINAL for item in self.states.values()
        )


def told_result(payload: bytes) -> dict[str, Any] | None:
    """A device's result, if it is one. It may be anybody's: its shape is judged here, once."""
    try:
        found = strict_json.loads(payload, max_bytes=MAX_RESULT_BYTES, what="result")
    except OtaError:
        return None
    if not isinstance(found, dict):
        return None
    number, words = found.get("number"), [found.get(key, "") for key in RESULT_WORDS]
    if type(number) is not int or not all(isinstance(word, str) for word in words):
        return None
    return found


def _send(args: Namespace, console: Console, made: Command, data: bytes) -> None:
    """Again and again, until everybody we know of has answered or the time is over."""
    topics = Topics(args.root)
    topic, results = _places(topics, made.target, args.to_group)
    watch, alone = Watch(topics, made.id), bool(made.target.device)
    limit = time.monotonic() + min(args.wait_s, args.expires_s)
    with _link(args) as link:
        link.subscribe([results])
        again_s = 0.0
        while time.monotonic() < limit and not (watch.over and alone):
            if time.monotonic() >= again_s and not (alone and watch.states):
                link.publish(topic, data, retain=False, expiry_s=args.expires_s)
                again_s = time.monotonic() + AGAIN_S
            heard = link.hear(min(0.5, limit - time.monotonic()))
            if heard is not None and watch.hear(heard.topic, heard.payload):
                _show(console, watch, topics.whose(heard.topic)[0])
    if console.as_json:
        console.json({"command": made.id, "devices": watch.states})
    if not watch.states:
        raise Unavailable(
            f"nobody has answered command {made.id}",
            hint="it counts until it expires; devices that come back will do it",
        )
    bad = [name for name, item in watch.states.items() if item.get("state") != "succeeded"]
    if bad:
        item = watch.states[bad[0]]
        raise Unavailable(f"{bad[0]}: {item.get('state')}: {item.get('detail', '')}".rstrip(": "))


def _show(console: Console, watch: Watch, device: str) -> None:
    if console.as_json:
        return
    item = watch.states[device]
    why = " ".join(str(item.get(key, "")) for key in ("code", "detail")).strip()
    console.line(f"{device:<24}{item.get('state', ''):<12}{why}".rstrip())
    if item.get("state") == "succeeded" and item.get("data"):
        console.line(json.dumps(item["data"], indent=1, ensure_ascii=False))


def _places(topics: Topics, to: Target, to_group: str) -> tuple[str, str]:
    """(topic of the command, filter for its results)."""
    if to.device:
        return topics.device(to.device, "cmd"), topics.device(to.device, "result")
    if not to.group and not to_group:
        raise InvalidRequest("cannot send it by labels alone: --to-group says where it goes")
    return topics.group(to.group or to_group, "cmd"), topics.every_device("result")


def _link(args: Namespace) -> Any:
    place = broker_words.broker(args)
    from stoker_ota.drivers.mqtt_operator import OperatorLink

    return OperatorLink(place)


def next_sequence(folder: Path) -> int:
    """Rising, also when the file is lost or damaged, or several operators sign: seconds, or one
    more.
    """
    path = folder / "fleet-sequence"
    kept, seconds = 0, int(time.time())
    with contextlib.suppress(FileNotFoundError, ValueError):
        kept = int(path.read_text(encoding="utf-8"))
    number = seconds if not 0 <= kept < MAX_VERSION else max(kept + 1, seconds)
    folders.replace(path, str(number).encode())
    return number


def _said(console: Console, facts: dict[str, object], line: str) -> None:
    if console.as_json:
        console.json(facts)
    else:
        console.line(line)
        sys.stdout.flush()
