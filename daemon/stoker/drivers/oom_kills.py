"""How often the kernel's OOM killer struck: in our own memory cgroup where that is told
(memory.events counts our children too), else on the whole machine.

A count before and after tells an OOM kill from a SIGKILL of a person's.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

_KEY: Final = "oom_kill"


class OomKills:
    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def count(self) -> int:
        """Kills until now; 0 where the kernel does not say."""
        for path in (self._own_events(), self._root / "proc/vmstat"):
            with contextlib.suppress(OSError, ValueError):
                for row in path.read_text().splitlines():
                    name, _, value = row.partition(" ")
                    if name == _KEY:
                        return int(value)
        return 0

    def _own_events(self) -> Path:
        """memory.events of our cgroup v2; a path that does not exist elsewhere."""
        with contextlib.suppress(OSError):
            for row in (self._root / "proc/self/cgroup").read_text().splitlines():
                if row.startswith("0::"):
                    folder = self._root / "sys/fs/cgroup" / row[3:].lstrip("/")
                    return folder / "memory.events"
        return self._root / "nonexistent"
