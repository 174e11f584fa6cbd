"""Hands the terminal to one program until it ends, as a shell does.

Its keys' signals go to that program alone: make, which started the tour, would take a Ctrl-C that
only stopped an answer for its own, and end with 130. Ctrl-Z stops all of us as one job.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence


def run(words: Sequence[str]) -> int:
    """The program's exit status; 128 and its number where a signal ended it."""
    try:
        os.tcgetpgrp(sys.stdin.fileno())
    except OSError:  # not the terminal whose keys send us signals: nothing is to be handed over
        return _status(subprocess.Popen(words).wait())
    ours = os.getpgrp()
    child = subprocess.Popen(words, process_group=0)
    try:
        _attend(child, ours)
    finally:
        if child.returncode is None:
            child.terminate()
            child.send_signal(signal.SIGCONT)  # a stopped one would not hear that
            child.wait()
        _take_back(ours)
    return _status(child.returncode)


def _attend(child: subprocess.Popen[bytes], ours: int) -> None:
    """Until it ends. Whenever it is stopped we stop too, and the shell has its turn."""
    while True:
        with contextlib.suppress(OSError):  # it has ended, or the terminal is gone
            # In the background this stops us until somebody wants us in front.
            os.tcsetpgrp(sys.stdin.fileno(), child.pid)
        os.kill(child.pid, signal.SIGCONT)  # also if it read before the terminal was its own
        _, status = os.waitpid(child.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            child.returncode = os.waitstatus_to_exitcode(status)
            return
        _take_back(ours)
        os.killpg(ours, signal.SIGTSTP)


def _take_back(ours: int) -> None:
    """From the background, where the kernel would stop us for it."""
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        with contextlib.suppress(OSError):  # the terminal is gone
            os.tcsetpgrp(sys.stdin.fileno(), ours)
    finally:
        signal.signal(signal.SIGTTOU, before)


def _status(returncode: int) -> int:
    return returncode if returncode >= 0 else 128 - returncode
