"""What can go wrong for a caller, as one exception with a stable kebab-case code.

Codes come from D-Bus error names by rule alone (``org.stoker.Error.QuotaExceeded`` is
``quota-exceeded``), so that an older client understands errors of a newer agent.
It must not import GLib: command line programs build and show errors without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PREFIX: Final = "org.stoker.Error."
RETRYABLE: Final = frozenset(
    {
        "busy",
        "quota-exceeded",
        "model-loading",
        "preempted",
        "deadline-exceeded",
        "throttled",
        "engine-failed",
        "unavailable",
    }
)
START_HINT: Final = "is stokerd running? See: systemctl status stoker"

_BUS: Final = "org.freedesktop.DBus.Error."
_TIMEOUT = ("deadline-exceeded", "the agent did not answer in time")
_OLD = ("unavailable", "the agent is starting, or it is older than this client: try again")
# What the bus daemon, or GDBus in front of the agent, may answer: code and hint.
_FOREIGN: Final[dict[str, tuple[str, str]]] = {
    "ServiceUnknown": ("unavailable", START_HINT),
    "NameHasNoOwner": ("unavailable", START_HINT),
    "NoServer": ("unavailable", "is the D-Bus daemon running?"),
    "FileNotFound": ("unavailable", "is the D-Bus daemon running?"),
    "Disconnected": ("unavailable", "the bus closed the connection"),
    "NoReply": _TIMEOUT,
    "Timeout": _TIMEOUT,
    "TimedOut": _TIMEOUT,
    "AccessDenied": ("not-authorized", "only root and group stoker-admin may manage"),
    "UnknownObject": _OLD,
    "UnknownMethod": _OLD,
    "UnknownInterface": _OLD,
    "UnknownProperty": _OLD,
    "InvalidArgs": ("invalid-request", ""),
    "LimitsExceeded": ("unavailable", "the bus has too many connections or messages"),
}

Details = dict[str, str | int | float | bool]


class StokerClientError(Exception):
    """A call that failed. ``retryable``: the same call may succeed later."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str = "",
        retryable: bool | None = None,
        details: Mapping[str, str | int | float | bool] | None = None,
        dbus_name: str = "",
    ) -> None:
        """``dbus_name``: how the bus itself named its error, e.g. ``UnknownObject``, or the
        agent, with its prefix; "" where neither has answered.
        """
        super().__init__(message)
        self.dbus_name = dbus_name
        self.code = code
        self.message = message
        self.hint = hint
        self.retryable = code in RETRYABLE if retryable is None else retryable
        self.details: Details = dict(details or {})

    def record(self) -> dict[str, object]:
        """The error as the plain object that streams and ``--json`` carry."""
        out: dict[str, object] = {"code": self.code, "message": self.message}
        if self.hint:
            out["hint"] = self.hint
        if self.retryable:
            out["retryable"] = True
        if self.details:
            out["details"] = dict(self.details)
        return out


def code_of(dbus_name: str) -> str:
    """``org.stoker.Error.QuotaExceeded`` → ``quota-exceeded``."""
    import re

    words = re.findall(r"[A-Z][a-z0-9]*", dbus_name.removeprefix(PREFIX))
    return "-".join(word.lower() for word in words) or "internal"


def from_dbus(name: str, message: str) -> StokerClientError:
    """The error of a D-Bus error reply.

    Line 1 of the message is for people; lines ``hint: …`` and ``details: {json}`` follow
    where there is something to say.
    """
    first, *rest = message.split("\n")
    if name.startswith(PREFIX):
        hint, details = _tail(rest)
        return StokerClientError(code_of(name), first, hint=hint, details=details, dbus_name=name)
    code, hint = _FOREIGN.get(name.removeprefix(_BUS), ("internal", ""))
    if hint is START_HINT:
        first = "cannot reach Stoker: nothing owns org.stoker.Agent1 on this bus"
    elif code == "internal":
        first = f"cannot complete the call: {name}: {first}"
    return StokerClientError(code, first, hint=hint, dbus_name=name.removeprefix(_BUS))


def from_record(record: object) -> StokerClientError:
    """The error in a stream's last line ``{"error": {code, message, hint, …}}``."""
    if not isinstance(record, Mapping):
        return StokerClientError("internal", "the agent reported an error it did not describe")
    code, message, hint = (record.get(key) for key in ("code", "message", "hint"))
    code = code if isinstance(code, str) and code else "internal"
    retryable = record.get("retryable")
    return StokerClientError(
        code,
        message if isinstance(message, str) and message else code,
        hint=hint if isinstance(hint, str) else "",
        retryable=retryable if isinstance(retryable, bool) else None,
        details=_plain(record.get("details")),
    )


def _tail(lines: list[str]) -> tuple[str, Details]:
    hint, details = "", Details()
    for line in lines:
        if line.startswith("hint: "):
            hint = line.removeprefix("hint: ")
        elif line.startswith("details: "):
            import json

            try:
                details = _plain(json.loads(line.removeprefix("details: ")))
            except ValueError:
                continue
    return hint, details


def _plain(found: object) -> Details:
    if not isinstance(found, Mapping):
        return {}
    return {str(k): v for k, v in found.items() if isinstance(v, str | int | float | bool)}
