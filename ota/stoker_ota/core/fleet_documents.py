"""What a fleet says to devices, as values: a command, and the desired state of an audience.

Parsing is strict and pure; who may say it and when is ``fleet_gate``. What a command's
arguments and a section's values mean is the agent's to judge: here they are bounded only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from stoker_ota.core import clock, fields, strict_json
from stoker_ota.core.fields import MAX_VERSION, moment
from stoker_ota.core.topics import LEVEL
from stoker_ota.getters import Table

COMMAND_TYPE: Final = "application/vnd.stoker.command.v1+json"
DESIRED_TYPE: Final = "application/vnd.stoker.desired.v1+json"
MAX_COMMAND_BYTES: Final = 16 << 10
MAX_DESIRED_BYTES: Final = 32 << 10
MAX_LIFE: Final = timedelta(days=7)
"""A command lives no longer: its id must be remembered as long."""
MAX_GROUPS: Final = 3  # each takes two subscriptions, and some brokers give ten
MAX_LABELS: Final = 16
MAX_VALUE_BYTES: Final = 8 << 10
COMMANDS: Final = (
    "update.check", "update.install", "update.rollback", "update.confirm", "model.activate",
    "policy.set", "runtime.restart", "runtime.pause", "runtime.resume", "report.state",
    "report.diagnostics", "log.upload", "config.get", "trust.refresh", "cancel",
)  # fmt: skip
WORD: Final = re.compile(r"[a-z]+(?:[.-][a-z]+)*")
SECTIONS: Final = ("update", "policy", "runtime", "campaign")
ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Target:
    """Exactly one of them is set."""

    device: str = ""
    group: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    def meets(self, device: str, groups: tuple[str, ...], labels: Mapping[str, str]) -> bool:
        if self.device:
            return self.device == device
        if self.group:
            return self.group in groups
        return bool(self.labels) and all(labels.get(k) == v for k, v in self.labels.items())


@dataclass(frozen=True, slots=True)
class Command:
    id: str
    sequence: int  # of the issuer, rising
    issued_at: datetime
    expires: datetime
    target: Target
    command: str
    args: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Desired:
    """``audience`` is ``d:<device>`` or ``g:<group>``; groups stand in a device's own only."""

    audience: str
    version: int
    issued_at: datetime
    expires: datetime
    sections: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    groups: tuple[str, ...] = ()


def parse_command(payload: bytes) -> Command:
    """Raises BadDocument, TooLarge."""
    table = fields.open_payload(payload, "command", MAX_COMMAND_BYTES)
    identity = table.text("id", max_bytes=36)
    if not ID.fullmatch(identity):
        table.refuse("id", "is no UUID in lower case")
    sequence = table.whole("sequence", low=1, high=MAX_VERSION)
    issued, expires = _times(table)
    if expires - issued > MAX_LIFE:
        table.refuse("expires", f"is more than {MAX_LIFE.days} days after issued_at")
    target = _target(table.table("target"))
    command = table.text("command", max_bytes=64)
    if not WORD.fullmatch(command):  # one that is not known here is the device's to refuse
        table.refuse("command", f"{command!r} is no command")
    args = _values(table, "args")
    table.finish()
    return Command(identity, sequence, issued, expires, target, command, args)


def command_payload(command: Command) -> bytes:
    """The document's bytes: same value, same bytes."""
    target: dict[str, object] = {}
    if command.target.device:
        target = {"device": command.target.device}
    elif command.target.group:
        target = {"group": command.target.group}
    else:
        target = {"labels": dict(command.target.labels)}
    return strict_json.dumps(
        {
            "schema": 1,
            "id": command.id,
            "sequence": command.sequence,
            "issued_at": clock.write(command.issued_at),
            "expires": clock.write(command.expires),
            "target": target,
            "command": command.command,
            "args": dict(command.args),
        }
    )


def parse_desired(payload: bytes) -> Desired:
    """Raises BadDocument, TooLarge."""
    table = fields.open_payload(payload, "desired state", MAX_DESIRED_BYTES)
    audience = table.text("audience", max_bytes=66)
    kind, _, name = audience.partition(":")
    if kind not in ("d", "g") or not LEVEL.fullmatch(name):
        table.refuse("audience", f"{audience!r} is not d:DEVICE or g:GROUP")
    version = table.whole("version", low=1, high=MAX_VERSION)
    issued, expires = _times(table)
    groups = table.texts("groups", (), max_items=MAX_GROUPS)
    for index, group in enumerate(groups):
        if not LEVEL.fullmatch(group) or group in groups[:index]:
            table.refuse(f"groups[{index}]", f"{group!r} is no group's name, or is there twice")
    if groups and kind == "g":
        table.refuse("groups", "a group's document cannot say who belongs to groups")
    sections = {name: _values(table, name) for name in SECTIONS if table.has(name)}
    table.finish()
    return Desired(audience, version, issued, expires, sections, groups)


def desired_payload(desired: Desired) -> bytes:
    """The document's bytes: same value, same bytes."""
    return strict_json.dumps(
        {
            "schema": 1,
            "audience": desired.audience,
            "version": desired.version,
            "issued_at": clock.write(desired.issued_at),
            "expires": clock.write(desired.expires),
            "groups": list(desired.groups),
            **{name: dict(values) for name, values in desired.sections.items()},
        }
    )


def _times(table: Table) -> tuple[datetime, datetime]:
    issued, expires = moment(table, "issued_at"), moment(table, "expires")
    if expires <= issued:
        table.refuse("expires", "is not after issued_at")
    return issued, expires


def _target(table: Table) -> Target:
    device, group = table.text("device", "", max_bytes=64), table.text("group", "", max_bytes=64)
    labels_table = table.table("labels")
    names = labels_table.keys()
    if len(names) > MAX_LABELS:
        labels_table.refuse("", f"more than {MAX_LABELS} labels")
    labels = {name: labels_table.text(name, max_bytes=128) for name in names}
    table.finish()
    for key, value in (("device", device), ("group", group)):
        if value and not LEVEL.fullmatch(value):
            table.refuse(key, f"{value!r} is no name")
    if sum(map(bool, (device, group, labels))) != 1:
        table.refuse("", "names not exactly one of device, group and labels")
    return Target(device, group, labels)


def _values(table: Table, key: str) -> Mapping[str, object]:
    """An object whose values the agent will judge; only its size is bounded here."""
    value = table.raw(key, {})
    if not isinstance(value, dict):
        table.refuse(key, "expected a table")
    if len(strict_json.dumps(value)) > MAX_VALUE_BYTES:
        table.refuse(key, f"longer than {MAX_VALUE_BYTES} bytes")
    return value
