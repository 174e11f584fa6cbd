"""The runner as a child over a socketpair: development, tests, systems without systemd.

Starts it, carries frames, reaps it and says how it ended. It decides nothing: whether
a dead runner comes back is the supervisor's business.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import psutil

from stoker.drivers.framed_socket import FramedSocket
from stoker.drivers.oom_kills import OomKills
from stoker.errors import ModelUnavailable
from stoker.events.inference import RunnerExit
from stoker.events.runner import Event, Request

# malloc asks for huge pages (madvise) for what it maps: keys and values, work buffers, weights
# that are not mapped from the file. glibc 2.35; a kernel without them ignores it.
HUGE_PAGES: Final[Mapping[str, str]] = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


class ChildLauncher:
    """See ``ports.runner.RunnerLauncher``."""

    def __init__(
        self,
        engine: str,
        *,
        gomp_spincount: int,
        extra: Sequence[str] = (),
        oom_kills: OomKills | None = None,
        huge_pages: bool = False,
    ) -> None:
        self._argv = [sys.executable, "-P", "-m", "stoker.runner", "--engine", engine, *extra]
        self._environment = _environment(gomp_spincount, huge_pages=huge_pages)
        self._oom_kills = oom_kills or OomKills()

    def start(self, libraries: str = "") -> ChildRunner:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            process = subprocess.Popen(
                [*self._argv, "--libraries", libraries, "--fd", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                env=self._environment,
            )
        except OSError as error:
            ours.close()
            raise ModelUnavailable(f"cannot start runner: {error.strerror}") from error
        finally:
            theirs.close()
        try:
            return ChildRunner(process, ours, self._oom_kills)
        except OSError:  # no descriptor left: nobody would know this child
            ours.close()
            process.kill()
            process.wait()
            raise


class ChildRunner:
    """See ``ports.runner.RunnerProcess``."""

    def __init__(
        self, process: subprocess.Popen[bytes], link: socket.socket, oom_kills: OomKills
    ) -> None:
        self._process = process
        self._link = FramedSocket(link)
        self._pidfd = os.pidfd_open(process.pid)
        self._oom_kills = oom_kills
        self._oom_before = oom_kills.count()

    @property
    def pid(self) -> int:
        return self._process.pid

    def fileno(self) -> int:
        return self._link.fileno()

    def exit_fileno(self) -> int:
        return self._pidfd

    def send(self, request: Request) -> None:
        self._link.send(request)

    def flush(self) -> bool:
        return self._link.flush()

    def receive(self) -> list[Event] | None:
        return self._link.receive()

    def exited(self) -> RunnerExit | None:
        code = self._process.poll()
        if code is None:
            return None
        if code >= 0:
            return RunnerExit(status=code)
        oom = -code == signal.SIGKILL and self._oom_kills.count() > self._oom_before
        return RunnerExit(signal=-code, oom_killed=oom)

    def signal(self, signum: int) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signum)

    def memory_bytes(self) -> int:
        try:
            process = psutil.Process(self._process.pid)
            with contextlib.suppress(psutil.AccessDenied):
                return int(process.memory_full_info().pss)
            return int(process.memory_info().rss)
        except psutil.Error:
            return 0

    def close(self) -> None:
        self._link.close()

    def release(self) -> None:
        """After the exit: give the pidfd back."""
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


def _environment(gomp_spincount: int, *, huge_pages: bool) -> Mapping[str, str]:
    """libgomp and glibc read theirs when they are loaded: they must be there before exec."""
    return {
        **{k: v for k, v in os.environ.items() if k not in ("NOTIFY_SOCKET", "WATCHDOG_USEC")},
        **(HUGE_PAGES if huge_pages else {}),
        "GOMP_SPINCOUNT": str(gomp_spincount),
        "PYTHONPATH": _python_path(),
        "GGML_NO_BACKTRACE": "1",
        "PYTHONUNBUFFERED": "1",
    }


def _python_path() -> str:
    """The package may lie where only its programs look (/usr/lib/stoker)."""
    own = str(Path(__file__).parents[2])
    return os.pathsep.join(filter(None, (own, os.environ.get("PYTHONPATH", ""))))
