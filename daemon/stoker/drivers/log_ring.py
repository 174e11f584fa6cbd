"""The last lines of our own log in memory, for a fleet that asks for them. Bounded in bytes."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Final

MAX_BYTES: Final = 256 << 10
MAX_LINE: Final = 2000


class LogRing(logging.Handler):
    """Times are UTC. Never raises."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        super().__init__()
        self._max_bytes, self._bytes = max_bytes, 0
        self._lines: deque[str] = deque()
        self._guard = threading.Lock()
        self.setFormatter(
            logging.Formatter(
                "%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"
            )
        )

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)[:MAX_LINE]
        except Exception:
            self.handleError(record)
            return
        with self._guard:
            self._lines.append(line)
            self._bytes += len(line)
            while self._bytes > self._max_bytes:
                self._bytes -= len(self._lines.popleft())

    def last(self, lines: int) -> str:
        with self._guard:
            kept = list(self._lines)[-lines:]
        return "\n".join(kept) + "\n"
