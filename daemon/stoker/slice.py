"""stoker-slice: root for a moment, gives stoker.slice CPUs of its own and says what came of it.

A program of its own (systemd/stoker-slice.service); stokerd only reads its result. It never
fails the boot: without a partition the model runs on shared CPUs.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from stoker.core.cpu_choice import choose, isolated, parse_list
from stoker.drivers.cpu_topology import read_cpus
from stoker.drivers.partition import Partition, Result
from stoker.drivers.systemd_units import SystemdUnits
from stoker.errors import StokerError


def entry(arguments: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    partition = Partition(SystemdUnits())
    folder = Path(os.environ.get("RUNTIME_DIRECTORY", "/run/stoker-slice"))
    if "--release" in words:
        partition.release()
        result = Result("none", "", "member", "released")
    elif "--again" in words:
        found = partition.again(_before(folder / "state.json"))
        if found is None:
            return 0
        result = found
    else:
        result = _make(partition, os.environ.get("STOKER_CPUS", "auto"))
    text = json.dumps(dataclasses.asdict(result))
    sys.stderr.write(f"stoker.slice: {text}\n")
    try:
        (folder / "state.json").write_text(text + "\n")
    except OSError as error:
        sys.stderr.write(f"cannot write {folder}/state.json: {error.strerror}\n")
    return 0


def _before(path: Path) -> Result:
    """What was written down last; nothing where it makes no sense."""
    try:
        facts = json.loads(path.read_text())
        cpus, losses = str(facts["cpus"]), int(facts.get("losses", 0))
        parse_list(cpus)
        return Result(str(facts["state"]), cpus, str(facts["kernel"]), losses=losses)
    except (OSError, ValueError, KeyError, TypeError, StokerError):
        return Result("none", "", "")


def _make(partition: Partition, wanted: str) -> Result:
    there = read_cpus()
    try:
        cpus = choose(there, wanted.strip() or "auto")
    except StokerError as error:
        return Result("none", "", "", error.message)
    if not cpus:
        reason = "not wanted" if wanted == "none" else "there is no CPU to spare"
        return Result("none", "", "", reason)
    return partition.apply(cpus, "isolated" if isolated(there, cpus) else "root")
