"""Limits of this process's memory, how much of it was used, and a child that must live in them."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from stoker_ota.errors import InternalError, NoMemory
from stoker_ota.units import MIB
from stoker_ota.values.report import Proof

_PROGRAM_BYTES: Final = 56 * MIB
_WINDOW_COPIES: Final = 8  # source (2), payload, diff and result, and what unpacking takes
_ENTRY_BYTES: Final = 1024  # of the index, as bytes and as a value
_TIMEOUT_S: Final = 24 * 3600.0
_PR_SET_PDEATHSIG: Final = 1


def enough_bytes(window_bytes: int, windows: int = 1024) -> int:
    """Address space in which any delta of so many such windows can be applied.

    64 MiB for windows of 1 MiB; a thousand of them take one more.
    """
    entries = windows * _ENTRY_BYTES // MIB * MIB
    return _PROGRAM_BYTES + _WINDOW_COPIES * window_bytes + entries


def limit_memory(limit_bytes: int) -> None:
    """From now on this process gets at most so much address space (RLIMIT_AS)."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        limit_bytes = min(limit_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, hard))


def die_with_parent() -> None:
    """SIGKILL when the thread that started this process ends (prctl(2), PR_SET_PDEATHSIG).

    A child of a killed agent would hold its part and its broker session against the next one's.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def peak_memory_bytes() -> int:
    """The most that was resident since this program began; getrusage counts its parent too."""
    for row in Path("/proc/self/status").read_text().splitlines():
        if row.startswith("VmHWM:"):
            return int(row.split()[1]) * 1024
    return 0


def child_environment() -> dict[str, str]:
    """For a Python that must find the modules that this one finds: an installed program runs
    isolated, with the package's private folder first in its path.
    """
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def prove(delta: Path, old: Path, limit_bytes: int) -> Proof:
    """Applies the delta in a child with limited memory; every hash is checked there.

    NoMemory when the limit is too small; InternalError when the delta does not give the target.
    """
    command = [
        sys.executable, "-P", "-m", "stoker_ota.cli.main", "delta", "verify", "--json",
        "--memory-limit", str(limit_bytes // MIB), str(delta), str(old),
    ]  # fmt: skip
    began_s = time.monotonic()
    done = subprocess.run(
        command, capture_output=True, check=False, timeout=_TIMEOUT_S, env=child_environment()
    )
    seconds = time.monotonic() - began_s
    try:
        said = json.loads(done.stdout)
    except ValueError:
        said = {"error": {"message": done.stderr.decode("utf-8", "replace")[-300:]}}
    if done.returncode == 0:
        return Proof(limit_bytes, int(said["peak_memory_bytes"]), seconds)
    reason = said["error"].get("message", "no reason")
    if said["error"].get("code") == NoMemory.code:
        raise NoMemory(f"cannot apply the delta in {limit_bytes // MIB} MiB: {reason}")
    raise InternalError(f"cannot prove the delta: {reason}")
