"""The write end of a caller's pipe: non-blocking, with the unsent rest kept in memory.

How much may be kept is the service's decision (it pauses the job), not made here.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque


class PipeSink:
    """See ``ports.streams.StreamSink``."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._chunks: deque[bytes] = deque()
        self._pending = 0
        self._broken = False

    def fileno(self) -> int:
        return self._fd

    @property
    def pending_bytes(self) -> int:
        return self._pending

    @property
    def broken(self) -> bool:
        return self._broken

    def write(self, data: bytes) -> None:
        if self._broken or not data:
            return
        self._chunks.append(data)
        self._pending += len(data)
        if len(self._chunks) == 1:  # nothing waits before it: try at once
            self.flush()

    def flush(self) -> int:
        sent = 0
        while self._chunks and not self._broken:
            chunk = self._chunks[0]
            try:
                count = os.write(self._fd, chunk)
            except BlockingIOError:
                break
            except OSError:  # EPIPE: the reader is gone
                self._broken = True
                break
            sent += count
            if count < len(chunk):
                self._chunks[0] = chunk[count:]
            else:
                self._chunks.popleft()
        self._pending = 0 if self._broken else self._pending - sent
        if self._broken:
            self._chunks.clear()
        return sent

    def close(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = -1


class PipeSinks:
    """See ``ports.streams.StreamSinks``. Python ignores SIGPIPE, so EPIPE comes as an error."""

    def open(self, fd: int) -> PipeSink:
        return PipeSink(fd)
