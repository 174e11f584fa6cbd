"""Log lines to the system's journal with priority, logger and MESSAGE_ID.

The IDs name what an administrator may want explained (journalctl -x): systemd/stoker.catalog
holds the texts, a test compares the two. Elsewhere than under systemd, stderr stays as it is.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import struct
from collections.abc import Mapping
from typing import Final

SOCKET: Final = "/run/systemd/journal/socket"
_PRIORITIES: Final = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))

MESSAGE_IDS: Final[Mapping[str, str]] = {
    r"^model \S+ is ready$": "96c95cce04ac43e1a5d9c8cdc794c887",
    r"^model \S+ is set aside: ": "1864763ccad44380aec521f23793064b",
    r"^runner hung: ": "3f42795cc3c34052b47e9ed9ef0f7dbc",
    r"^runner .*out of memory": "0d5aa9edca044a7b9fd4b472e127ff37",
    r"^runner (killed by|exit status)": "e68a11d1edcc4a5eb1203ecbd3ddceef",
    r"^cannot start runner: ": "dd76d66ffc004047b668aecfab232472",
    r"^cannot read configuration: ": "6cc581cbe2594e79a15e6f3bd82ca2a6",
    r"^cannot use the installed set: ": "f4f50612576246e19e62e92bdc511226",
    r"^the model was not changed to ": "cd5f78509d5d4ea09ab8e118d760ae9e",
    r"^model \S+ does not fit as configured: ": "f518c9f224ca490f9d82c62eff6a9693",
    r"^watchdog is not fed: ": "1629e5cde4df4bafbb9fd8d8057ea920",
}
"""Pattern of a message -> its ID; the first that fits counts."""


def handler(environ: Mapping[str, str] = os.environ) -> logging.Handler | None:
    """None where our stderr is not the journal's."""
    return JournalHandler() if "JOURNAL_STREAM" in environ else None


class JournalHandler(logging.Handler):
    """Never raises: a full or absent journal must not stop the daemon."""

    def __init__(self, path: str = SOCKET) -> None:
        super().__init__()
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            data = datagram(self.format(record), record)
        except Exception:
            self.handleError(record)
            return
        with contextlib.suppress(OSError):
            self._socket.sendto(data, self._path)

    def close(self) -> None:
        self._socket.close()
        super().close()


def datagram(text: str, record: logging.LogRecord) -> bytes:
    """The journal's native form (systemd.journal-fields(7))."""
    fields = {
        "MESSAGE": text,
        "PRIORITY": str(next((p for level, p in _PRIORITIES if record.levelno >= level), 7)),
        "SYSLOG_IDENTIFIER": "stokerd",
        "LOGGER": record.name,
        "THREAD_NAME": record.threadName or "",
    }
    message = record.getMessage()
    for pattern, message_id in MESSAGE_IDS.items():
        if re.search(pattern, message):
            fields["MESSAGE_ID"] = message_id
            break
    return b"".join(_field(name, value) for name, value in fields.items())


def _field(name: str, value: str) -> bytes:
    data = value.encode("utf-8", "replace")
    if b"\n" not in data:
        return name.encode() + b"=" + data + b"\n"
    return name.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n"
