"""Large requests and results as sealed memory files instead of bytes of a message.

A file from a caller is looked at in this order: its seals (then nobody can change it under
us), its size, its content, which is read once. Nothing is mapped: a page of a hole that is
mapped is paid for by us, one that is read is not. Who may ask is decided elsewhere.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
from typing import Any, Final, NoReturn

from stoker.api import json_text
from stoker.api.unpacking import MAX_VALUES
from stoker.errors import Busy, InvalidRequest, RequestTooLarge

SEALS: Final = (
    fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
)  # man 2 fcntl, "File Sealing"
OPEN_PER_USER: Final = 8
OPEN: Final = 64
_HINT: Final = "memfd_create(MFD_ALLOW_SEALING), write, then F_SEAL_SHRINK|GROW|WRITE|SEAL"
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


def read_request(fd: int, limit: int) -> dict[str, Any]:
    """The JSON object in a sealed memory file; ``fd`` stays the caller's to close.

    Raises InvalidRequest for what is no sealed memory file or no such text, and
    RequestTooLarge, before anything of it is read.
    """
    return _parse(_read(fd, limit))


def _read(fd: int, limit: int) -> bytes:
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:  # EINVAL: not in memory, so its pages may not be there; EBADF: O_PATH
        _refuse("it is not a memory file")
    if seals & SEALS != SEALS:
        _refuse("it is not sealed: another could change it while it is read")
    size = os.fstat(fd).st_size
    if size > limit:
        raise RequestTooLarge(
            f"cannot take the request: {size} bytes, the limit is {limit}",
            hint="max_request_fd_bytes in stoker.toml is that limit",
            details={"size_bytes": size, "limit_bytes": limit},
        )
    data = bytearray()
    while len(data) < size:
        try:  # at an offset: the file's own position is shared with whoever sent it
            part = os.pread(fd, size - len(data), len(data))
        except OSError as error:
            _refuse(f"it cannot be read: {error.strerror}")
        if not part:
            _refuse("it is shorter than it says")
        data += part
    return bytes(data)


def _parse(data: bytes) -> dict[str, Any]:
    """As strict as the bus itself: UTF-8, one object, so many values and no more."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        _refuse(f"byte {error.start} is not UTF-8", hint="")
    # Counted before it is parsed: each value is a Python object and time of the main loop.
    plain, strings = _STRING.subn(b"", data)
    if strings + sum(plain.count(sign) for sign in (b",", b"[", b"{")) > MAX_VALUES:
        raise RequestTooLarge(
            f"cannot take the request: it has more than {MAX_VALUES} values",
            details={"limit_values": MAX_VALUES},
        )
    try:
        request = json_text.read(text, json_text.once)
    except ValueError as error:
        _refuse(f"it is no JSON: {error}", hint="")
    if not isinstance(request, dict):
        _refuse("it is no JSON object", hint="")
    return request


def _refuse(reason: str, hint: str = _HINT) -> NoReturn:
    raise InvalidRequest(f"cannot read request: {reason}", hint=hint, details={"path": "request"})


def sealed(data: bytes) -> int:
    """A new memory file with this content that nobody can change. Raises Busy."""
    try:
        fd = os.memfd_create("stoker-result", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        raise Busy(f"cannot make a memory file: {error.strerror}", hint="try again") from error
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    except OSError as error:
        os.close(fd)
        raise Busy(f"cannot fill a memory file: {error.strerror}", hint="try again") from error
    return fd


class ResultFiles:
    """One file for each result that was asked for; any thread.

    Its memory is ours even when only callers hold it, so a result becomes a file once: the
    same file is passed again while we keep it open, and afterwards it is theirs alone.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, tuple[int, int]] = {}  # oldest first
        self._given: set[str] = set()

    def open(self, job: str, uid: int, content: bytes) -> int:
        """A descriptor to send and to close; each has a position of its own. Raises Busy."""
        with self._lock:
            if job not in self._open:
                self._begin(job, uid, content)
            fd = self._open[job][0]
            try:
                return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                raise Busy(f"cannot pass the result: {error.strerror}", hint="try again") from error

    def forget(self, job: str) -> None:
        """The job is forgotten."""
        with self._lock:
            self._given.discard(job)
            self._close(job)

    def _begin(self, job: str, uid: int, content: bytes) -> None:
        if job in self._given:
            raise Busy(
                "cannot pass the result: its file was passed before and is closed here by now",
                hint="use that file, or GetResult",
            )
        own = [key for key, (_fd, user) in self._open.items() if user == uid]
        if len(own) >= OPEN_PER_USER:
            self._close(own[0])
        elif len(self._open) >= OPEN:
            self._close(next(iter(self._open)))
        self._open[job] = (sealed(content), uid)
        self._given.add(job)

    def _close(self, job: str) -> None:
        fd, _uid = self._open.pop(job, (-1, 0))
        if fd >= 0:
            os.close(fd)
