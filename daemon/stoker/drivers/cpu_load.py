"""How busy this machine's CPUs have been: seconds of all of them since boot. Reads only."""

from __future__ import annotations

import os
from pathlib import Path

STAT = Path("/proc/stat")
_BUSY = (0, 1, 2, 5, 6, 7)  # user, nice, system, irq, softirq, steal: proc_stat(5)


def busy_cpu_s(path: Path = STAT) -> float:
    """0 where the kernel does not tell."""
    try:
        words = path.read_text().split("\n", 1)[0].split()[1:]
        return sum(int(words[at]) for at in _BUSY) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
