"""Large requests as sealed memory files, which do not travel through the bus, and results back.

``worth_it`` says which, ``sealed`` makes the file that CreateJobFd takes, ``read`` reads the one
that GetResultFd gives.
"""

from __future__ import annotations

import fcntl
import json
import os
from typing import Any, Final

from stoker_client.errors import StokerClientError
from stoker_client.requests import Pairs

BYTES: Final = 64 << 10
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


def worth_it(request: Pairs) -> bool:
    """Whether its texts have 64 KiB or more."""
    return sum(_size(value) for _kind, value in request.values()) >= BYTES


def sealed(request: Pairs) -> int:
    """The request as JSON in a memory file; the descriptor is the caller's to close."""
    text = json.dumps({key: value for key, (_kind, value) in request.items()}, ensure_ascii=False)
    try:
        fd = os.memfd_create("stoker-request", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as fault:
        raise _failed("send the request", fault) from fault
    try:
        rest = memoryview(text.encode())
        while rest:
            rest = rest[os.write(fd, rest) :]
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except OSError as fault:
        os.close(fd)
        raise _failed("send the request", fault) from fault
    return fd


def read(fd: int) -> dict[str, Any]:
    """The JSON object in a file of the agent; closes it."""
    try:
        with os.fdopen(fd, "rb") as file:
            found = json.load(file)
    except OSError as fault:
        raise _failed("read the result", fault) from fault
    return dict(found)


def _size(value: object) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(_size(item) for item in value.values())
    if isinstance(value, list | tuple):
        return sum(_size(item) for item in value)
    return 0


def _failed(what: str, fault: OSError) -> StokerClientError:
    return StokerClientError("unavailable", f"cannot {what}: {fault.strerror}")
