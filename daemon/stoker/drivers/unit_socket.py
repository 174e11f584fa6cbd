"""Where stokerd waits for a unit that it starts: one group may connect, one user is let in.

It decides nothing about the unit. Files live in the runtime directory and are removed by whoever
made them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
from pathlib import Path

_log = logging.getLogger(__name__)


def listen(path: Path, group: int) -> socket.socket:
    """Only the group may connect. Not blocking. OSError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        os.chown(path, -1, group)
        path.chmod(0o660)
        listener.listen(1)
        listener.setblocking(False)
    except OSError:
        listener.close()
        remove(path)
        raise
    return listener


def accept(listener: socket.socket, uid: int, unit: str) -> tuple[socket.socket, int] | None:
    """The unit's connection and process; None when nobody came, or somebody else."""
    try:
        link, _ = listener.accept()
    except OSError:  # TimeoutError is one
        return None
    pid, found, _gid = struct.unpack(
        "3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    )
    if found != uid:
        _log.warning("user %d knocked at the socket of %s: refused", found, unit)
        link.close()
        return None
    return link, pid


def remove(*paths: Path) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink()
