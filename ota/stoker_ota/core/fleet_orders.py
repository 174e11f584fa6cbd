"""What an operator's words become: a command, the next desired state, a broker's rules. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from stoker_ota.core import clock, desired_sections, strict_json
from stoker_ota.core.fleet_documents import (
    MAX_COMMAND_BYTES,
    MAX_LIFE,
    SECTIONS,
    Command,
    Desired,
    Target,
)
from stoker_ota.core.topics import LEVEL, Topics
from stoker_ota.errors import BadDocument, InvalidRequest

FINAL: Final = ("succeeded", "failed", "rejected", "expired", "canceled")
_VERSION_7: Final = 7


def uuid7(milliseconds: int, random80: int) -> str:
    """RFC 9562, version 7: milliseconds since 1970, then random bits."""
    value = ((milliseconds & ((1 << 48) - 1)) << 80) | (random80 & ((1 << 80) - 1))
    value = (value & ~(0xF << 76)) | (_VERSION_7 << 76)
    value = (value & ~(0x3 << 62)) | (0x2 << 62)
    digits = f"{value:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def target(device: str, group: str, labels: Sequence[str]) -> Target:
    """InvalidRequest unless it is exactly one of them."""
    pairs = dict(_pair(item) for item in labels)
    if sum(map(bool, (device, group, pairs))) != 1:
        raise InvalidRequest("cannot address a command: name --device, --group or --label")
    for name in filter(None, (device, group)):
        if not LEVEL.fullmatch(name):
            raise InvalidRequest(f"cannot address {name!r}: letters, digits, - and _ only")
    return Target(device, group, pairs)


def command(
    word: str,
    to: Target,
    args: Sequence[str],
    *,
    identity: str,
    sequence: int,
    now: datetime,
    life_s: int,
) -> Command:
    if not 0 < life_s <= MAX_LIFE.total_seconds():
        raise InvalidRequest(f"cannot make a command: {life_s} s are outside 1..604800")
    life = timedelta(seconds=life_s)
    values = {key: value_of(text) for key, text in map(_pair, args)}
    return Command(identity, sequence, now, now + life, to, word, values)


def value_of(text: str) -> object:
    """JSON where it is JSON, else the text itself. InvalidRequest."""
    try:
        return strict_json.loads(text.encode(), max_bytes=MAX_COMMAND_BYTES, what="argument")
    except (BadDocument, UnicodeEncodeError):  # a half character: it is refused as text, too
        return text


def desired(
    table: Mapping[str, object],
    before: Desired | None,
    now: datetime,
    days: int,
    *,
    newest: int = 0,
) -> Desired:
    """The state of a TOML file, as the version after ``before``, or after ``newest`` where devices
    have more. InvalidRequest.
    """
    audience = str(table.get("audience", ""))
    if before is not None and before.audience != audience:
        raise InvalidRequest(f"cannot follow {before.audience}: this is for {audience}")
    strange = sorted(set(table) - {"audience", "groups", "version", *SECTIONS})
    if strange:
        raise InvalidRequest(f"cannot read the desired state: {strange[0]} is unknown")
    sections = {name: table[name] for name in SECTIONS if name in table}
    groups, version = table.get("groups", ()), table.get("version", 0)
    if isinstance(version, bool) or not isinstance(version, int) or version < 0:
        raise InvalidRequest("cannot read the desired state: version is a whole number")
    if not isinstance(groups, list | tuple):
        raise InvalidRequest("cannot read the desired state: groups is a list")
    wanted = version or max(before.version if before is not None else 0, newest) + 1
    if before is not None and wanted <= before.version:
        raise InvalidRequest(
            f"cannot go back to version {wanted}: devices have {before.version}",
            hint="older content is published under a newer version",
        )
    plain = {name: dict(values) for name, values in sections.items() if isinstance(values, dict)}
    if len(plain) != len(sections):
        raise InvalidRequest("cannot read the desired state: each section is a table")
    desired_sections.check(plain)
    end = clock.later(now, days)
    return Desired(audience, wanted, now, end, plain, tuple(str(item) for item in groups))


def place(topics: Topics, audience: str) -> str:
    """The topic of an audience's desired state."""
    kind, _, name = audience.partition(":")
    if kind == "d":
        return topics.device(name, "desired")
    if kind == "g":
        return topics.group(name, "desired")
    raise InvalidRequest(f"cannot publish for {audience!r}: it is d:DEVICE or g:GROUP")


_READ: Final = ("g/+/desired", "g/+/cmd", "catalog", "trust/+", "b/+")
_WRITTEN: Final = ("result", "state", "status", "telemetry", "up/+/+", "ha")
_GUEST: Final = "homeassistant/device/{}/config"
"""Home Assistant's own prefix; whoever has none loses nothing by the rule."""


def mosquitto_rights(root: str) -> str:
    """For acl_file, once for all devices: the user is the certificate's common name. A device may
    read all of its own, so that its test can see what comes back.
    """
    read = [f"{root}/d/%u/#", *(f"{root}/{item}" for item in _READ)]
    told = [*(f"{root}/d/%u/{item}" for item in _WRITTEN), _GUEST.format("%u")]
    rows = [f"pattern read {item}" for item in read]
    return "\n".join([*rows, *(f"pattern write {item}" for item in told)])


def emqx_rights(root: str) -> str:
    """For acl.conf, once for all devices (``peer_cert_as_username = cn``)."""
    me = "${username}"
    read = [f"{root}/d/{me}/#", *(f"{root}/{item}" for item in _READ)]
    told = [*(f"{root}/d/{me}/{item}" for item in _WRITTEN), _GUEST.format(me)]
    may_read, may_tell = (", ".join(f'"{item}"' for item in rows) for rows in (read, told))
    return f"{{allow, all, subscribe, [{may_read}]}}.\n{{allow, all, publish, [{may_tell}]}}."


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InvalidRequest(f"cannot read {text!r}: KEY=VALUE")
    return key, value
