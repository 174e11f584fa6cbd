"""Child processes of the tour: how they start apart from its terminal, and how they end."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence


def start(command: Sequence[str], **where: object) -> subprocess.Popen[bytes]:
    """A child with a session of its own that dies if the tour is killed."""
    guard = shutil.which("setpriv")
    guarded = [guard, "--pdeathsig", "TERM", "--", *command] if guard else list(command)
    return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
        guarded, stdin=subprocess.DEVNULL, start_new_session=True, **where
    )


def stop(process: subprocess.Popen[bytes], limit_s: float) -> None:
    """SIGTERM, then SIGKILL."""
    process.terminate()
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
