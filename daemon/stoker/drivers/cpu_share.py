"""What stoker-slice made of the CPUs, as it wrote it down. Reads only; never asks for other ones.

Which CPUs the model gets is root's business (STOKER_CPUS in /etc/default/stoker): the daemon has
no say in it, so that nobody who breaks into it can take CPUs from the machine.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from stoker.drivers.regular_file import read_regular
from stoker.ports.doors import CpuShare

STATE: Final = Path("/run/stoker-slice/state.json")
_LIMIT_BYTES: Final = 4096


def read_cpu_share(path: Path = STATE) -> CpuShare:
    """An absent or damaged file is ``unknown``."""
    try:
        facts = json.loads(read_regular(path, _LIMIT_BYTES))
    except (OSError, ValueError):
        return CpuShare()
    if not isinstance(facts, dict):
        return CpuShare()
    state, cpus, reason = (str(facts.get(key, "")) for key in ("state", "cpus", "reason"))
    return CpuShare(state, cpus, reason) if state else CpuShare()
