"""A service whose configuration is wrong waits before it ends, longer each time, so that systemd,
which tries for ever, does not try each second. A changed file or SIGTERM ends the wait at once.

How often it was tried is kept in the runtime directory, with what the files looked like then.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from stoker.drivers.config_files import DEFAULT_PATH, VENDOR_PATH
from stoker.units import Seconds

STATE: Final = "wrong-configuration"
LONGEST_S: Final = Seconds(60.0)  # below systemd's limit for a start, 90 s
_LOOK_S: Final = 0.5
_log = logging.getLogger(__name__)


def pause_s(tries: int) -> Seconds:
    """After so many of the same failures: 0, 1, 3, 7 … 60 s. The first one is told at once."""
    return Seconds(min(2.0 ** min(tries, 10) - 1, LONGEST_S))


def stopped(seconds: float) -> bool:
    """SIGTERM came within ``seconds``. It is blocked, so it waits for us."""
    return signal.sigtimedwait({signal.SIGTERM}, seconds) is not None


def wait(
    runtime_dir: Path, main: Path | None, *, stopped: Callable[[float], bool] = stopped
) -> None:
    """Until the next try makes sense. Never raises: who cannot count waits least."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    state = runtime_dir / STATE
    files = _look(main)
    pause = pause_s(_count(state, files))
    if pause:
        _log.error("trying again in %.0f s, or as soon as the configuration changes", pause)
    end = time.monotonic() + pause
    while (left := end - time.monotonic()) > 0 and _look(main) == files:
        if stopped(min(left, _LOOK_S)):
            with contextlib.suppress(OSError):
                state.unlink()  # somebody is at it: what comes next fails at once, if it does
            return


def _count(state: Path, files: str) -> int:
    """How often it was tried with these files before; counts this time."""
    tries = 0
    with contextlib.suppress(OSError, ValueError):
        known, _, number = state.read_text().rpartition("\n")
        tries = int(number) if known == files else 0
    with contextlib.suppress(OSError):
        state.write_text(f"{files}\n{tries + 1}")
    return max(tries, 0)


def _look(main: Path | None) -> str:
    """What would be read, by name, time and size."""
    path = main or DEFAULT_PATH
    found = [path]
    for folder in (VENDOR_PATH, path.with_suffix(".d")):
        with contextlib.suppress(OSError):
            found += sorted(folder.iterdir())
    rows = []
    for file in found:
        with contextlib.suppress(OSError):
            facts = file.stat()
            rows.append(f"{file.name!r} {facts.st_ino} {facts.st_mtime_ns} {facts.st_size}")
    return "; ".join(rows)
