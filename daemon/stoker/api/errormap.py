"""The one table: error code ↔ D-Bus name ↔ exit status ↔ HTTP status.

Nothing else in the project may spell a D-Bus error name, an exit status or an HTTP
status of an error. It also knows how a typed error travels in a D-Bus message, which
is one string; see ``to_dbus`` for the form. It must not import GLib: clients use it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from stoker.errors import (
    DeadlineExceeded,
    InternalError,
    InvalidRequest,
    NotAuthorized,
    NotFound,
    StokerError,
    Unavailable,
    by_code,
)

PREFIX: Final = "org.stoker.Error."


@dataclass(frozen=True, slots=True)
class Row:
    """How one code looks outside. ``exit_status`` follows sysexits(3) where one fits."""

    code: str
    dbus_name: str
    exit_status: int
    http_status: int


def _row(code: str, name: str, exit_status: int, http_status: int) -> Row:
    return Row(code, PREFIX + name, exit_status, http_status)


ROWS: Final[tuple[Row, ...]] = (
    _row("internal", "Internal", 70, 500),  # EX_SOFTWARE
    _row("invalid-request", "InvalidRequest", 64, 400),  # EX_USAGE
    _row("request-too-large", "RequestTooLarge", 65, 413),  # EX_DATAERR
    _row("not-found", "NotFound", 66, 404),  # EX_NOINPUT
    _row("not-authorized", "NotAuthorized", 77, 403),  # EX_NOPERM
    _row("config-invalid", "ConfigInvalid", 78, 500),  # EX_CONFIG
    _row("busy", "Busy", 75, 503),  # EX_TEMPFAIL: every "come back later"
    _row("quota-exceeded", "QuotaExceeded", 75, 429),
    _row("context-length-exceeded", "ContextLengthExceeded", 65, 400),
    _row("model-unavailable", "ModelUnavailable", 69, 503),  # EX_UNAVAILABLE
    _row("model-loading", "ModelLoading", 75, 503),
    _row("insufficient-memory", "InsufficientMemory", 71, 503),  # EX_OSERR
    _row("grammar-invalid", "GrammarInvalid", 65, 400),
    _row("cancelled", "Cancelled", 130, 499),  # as a shell says after Ctrl-C; nginx's 499
    _row("preempted", "Preempted", 75, 503),
    _row("deadline-exceeded", "DeadlineExceeded", 124, 504),  # as timeout(1)
    _row("slow-consumer", "SlowConsumer", 74, 408),  # EX_IOERR
    _row("throttled", "Throttled", 75, 503),
    _row("storage-failed", "StorageFailed", 74, 507),  # EX_IOERR
    _row("engine-failed", "EngineFailed", 76, 502),  # the peer broke the talk: EX_PROTOCOL
    _row("unavailable", "Unavailable", 69, 503),
    # updates
    _row("bad-delta", "BadDelta", 65, 422),
    _row("source-mismatch", "SourceMismatch", 65, 409),
    _row("chunk-hash", "ChunkHash", 65, 422),
    _row("result-hash", "ResultHash", 65, 422),
    _row("no-space", "NoSpace", 73, 507),
    _row("no-memory", "NoMemory", 71, 503),
    _row("file-unreadable", "FileUnreadable", 66, 404),
    _row("bad-document", "BadDocument", 65, 422),
    _row("too-large", "TooLarge", 65, 413),
    _row("bad-signature", "BadSignature", 77, 403),
    _row("bad-chain", "BadChain", 77, 403),
    _row("revoked", "Revoked", 77, 403),
    _row("expired", "Expired", 77, 403),
    _row("rollback", "Rollback", 77, 409),
    _row("freeze", "Freeze", 77, 409),
    _row("mix-and-match", "MixAndMatch", 77, 409),
    _row("wrong-target", "WrongTarget", 69, 409),
    _row("dependency", "Dependency", 69, 409),
    _row("unhealthy", "Unhealthy", 69, 503),
)

_BY_CODE: Final = {row.code: row for row in ROWS}
_BY_NAME: Final = {row.dbus_name: row for row in ROWS}

_BUS = "org.freedesktop.DBus.Error."
_START_HINT = "is stokerd running? systemctl status stoker"
# What the bus itself, or GDBus in front of our objects, may say to a client of ours.
_FOREIGN: Final[dict[str, tuple[type[StokerError], str]]] = {
    _BUS + "ServiceUnknown": (Unavailable, _START_HINT),
    _BUS + "NameHasNoOwner": (Unavailable, _START_HINT),
    _BUS + "NoServer": (Unavailable, "is the D-Bus daemon running?"),
    _BUS + "FileNotFound": (Unavailable, "is the D-Bus daemon running?"),
    _BUS + "Disconnected": (Unavailable, "the bus closed the connection"),
    _BUS + "NoReply": (DeadlineExceeded, "raise the client's reply timeout, or use CreateJob"),
    _BUS + "Timeout": (DeadlineExceeded, "raise the client's reply timeout, or use CreateJob"),
    _BUS + "TimedOut": (DeadlineExceeded, "raise the client's reply timeout, or use CreateJob"),
    _BUS + "AccessDenied": (NotAuthorized, "only root and group stoker-admin may manage"),
    _BUS + "UnknownObject": (NotFound, ""),
    _BUS + "UnknownMethod": (NotFound, ""),
    _BUS + "UnknownInterface": (NotFound, ""),
    _BUS + "UnknownProperty": (NotFound, ""),
    _BUS + "InvalidArgs": (InvalidRequest, ""),
    _BUS + "LimitsExceeded": (Unavailable, "the bus has too many connections or messages"),
}


def row(error: StokerError | type[StokerError] | str) -> Row:
    """The row of an error, a class or a code; codes without a row read as ``internal``."""
    code = error if isinstance(error, str) else error.code
    return _BY_CODE.get(code, _BY_CODE["internal"])


def exit_status(error: StokerError) -> int:
    return row(error).exit_status


def http_status(error: StokerError) -> int:
    return row(error).http_status


def to_dbus(error: StokerError) -> tuple[str, str]:
    """(error name, message) for a D-Bus error reply.

    The message is for people first: line 1 is the error's message; a line
    ``hint: …`` and a line ``details: {json object}`` follow where there is one.
    ``from_dbus`` reads it back.
    """
    lines = [_one_line(error.message)]
    if error.hint:
        lines.append("hint: " + _one_line(error.hint))
    if error.details:
        lines.append("details: " + json.dumps(error.details, ensure_ascii=False))
    # A lone surrogate or a NUL cannot travel in a D-Bus string.
    text = "\n".join(lines).replace("\0", "\\0")
    return row(error).dbus_name, text.encode("utf-8", "backslashreplace").decode()


def from_dbus(name: str, message: str) -> StokerError:
    """The typed error of a D-Bus error reply, ours or the bus's own."""
    if name in _FOREIGN:
        cls, hint = _FOREIGN[name]
        return cls(_one_line(message), hint=hint)
    found = _BY_NAME.get(name)
    if found is None:
        return InternalError(f"{name}: {_one_line(message)}")
    first, *rest = message.split("\n")
    hint, details = "", {}
    for line in rest:
        if line.startswith("hint: "):
            hint = line.removeprefix("hint: ")
        elif line.startswith("details: "):
            details = _details(line.removeprefix("details: "))
    return by_code(found.code)(first, hint=hint, details=details)


def _one_line(text: str) -> str:
    return " ".join(text.split("\n"))


def _details(text: str) -> dict[str, str | int | float | bool]:
    """What a peer wrote after ``details:``; anything but a flat object reads as nothing."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {k: v for k, v in found.items() if isinstance(v, str | int | float | bool)}
