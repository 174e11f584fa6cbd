"""One answer while it is being made: an iterator over the records of a job's pipe.

It owns the descriptor. Closing it early cancels the job; a stream that is not closed
is closed by its end, its error or the garbage collector.
"""

from __future__ import annotations

import os
import select
from collections import deque
from types import TracebackType
from typing import Final

from stoker_client.bus import Bus
from stoker_client.records import Lines, Record, cut_off, parse

_CHUNK_BYTES: Final = 64 << 10


class Stream:
    """Iterate for records, the last of which is ``done``; raises StokerClientError.

    Use it in a ``with`` block, or call ``close``, if you may stop before the end.
    """

    def __init__(self, bus: Bus, job: str, descriptor: int) -> None:
        self.job = job
        self._bus = bus
        self._fd = descriptor
        self._lines = Lines()
        self._ready: deque[bytes] = deque()
        self._ended = False

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Record:
        if self._ended:
            raise StopIteration
        while not self._ready:
            chunk = os.read(self._fd, _CHUNK_BYTES)
            if not chunk:
                self._end()
                raise cut_off()
            self._ready.extend(self._lines.feed(chunk))
        try:
            record = parse(self._ready.popleft())
        except Exception:
            self._end()
            raise
        if record.kind == "done":
            self._end()
        return record

    def wait(self, timeout_s: float) -> bool:
        """True when the next record, or the end, can be read without waiting."""
        if self._ended or self._ready:
            return True
        return bool(select.select([self._fd], [], [], timeout_s)[0])

    def close(self) -> None:
        """Cancel the job unless it has ended. Harmless when called again."""
        if not self._ended:
            self._end()
            self._bus.cancel_job(self.job)

    def _end(self) -> None:
        self._ended = True
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # The closed pipe alone cancels the job; no call on the bus from a finaliser.
        if not self._ended:
            self._end()
