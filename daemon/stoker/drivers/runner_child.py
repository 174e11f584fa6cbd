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
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from stoker.core import frames
from stoker.errors import InvalidRequest, ModelUnavailable
from stoker.events.inference import RunnerExit
from stoker.events.runner import Event, Request, parse_event, to_body

_READ_BYTES = 256 * 1024


class ChildLauncher:
    """See ``ports.runner.RunnerLauncher``."""

    def __init__(self, engine: str, *, gomp_spincount: int, extra: Sequence[str] = ()) -> None:
        self._argv = [sys.executable, "-m", "stoker.runner", "--engine", engine, *extra]
        self._environment = _environment(gomp_spincount)

    def start(self) -> ChildRunner:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            process = subprocess.Popen(
                [*self._argv, "--fd", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                env=self._environment,
            )
        except OSError as error:
            ours.close()
            raise ModelUnavailable(f"cannot start runner: {error.strerror}") from error
        finally:
            theirs.close()
        return ChildRunner(process, ours)


class ChildRunner:
    """See ``ports.runner.RunnerProcess``."""

    def __init__(self, process: subprocess.Popen[bytes], link: socket.socket) -> None:
        link.setblocking(False)
        self._process = process
        self._link = link
        self._decoder = frames.FrameDecoder()
        self._out: deque[bytes] = deque()
        self._pidfd = os.pidfd_open(process.pid)
        self._oom_before = _oom_kills()

    @property
    def pid(self) -> int:
        return self._process.pid

    def fileno(self) -> int:
        return self._link.fileno()

    def exit_fileno(self) -> int:
        return self._pidfd

    def send(self, request: Request) -> None:
        self._out.append(frames.encode(to_body(request)))
        if len(self._out) == 1:
            self.flush()

    def flush(self) -> bool:
        while self._out:
            data = self._out[0]
            try:
                count = self._link.send(data)
            except BlockingIOError:
                return False
            except OSError:  # the peer is gone: its exit will be seen
                self._out.clear()
                break
            if count < len(data):
                self._out[0] = data[count:]
            else:
                self._out.popleft()
        return True

    def receive(self) -> list[Event] | None:
        try:
            data = self._link.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        try:
            return [parse_event(body) for body in self._decoder.feed(data)]
        except (frames.FrameError, InvalidRequest):
            return None  # out of step: never trust this stream again

    def exited(self) -> RunnerExit | None:
        code = self._process.poll()
        if code is None:
            return None
        if code >= 0:
            return RunnerExit(status=code)
        oom = -code == signal.SIGKILL and _oom_kills() > self._oom_before
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
        self._out.clear()

    def release(self) -> None:
        """After the exit: give the pidfd back."""
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


def _environment(gomp_spincount: int) -> Mapping[str, str]:
    """libgomp reads its settings when it is loaded: they must be there before exec."""
    return {
        **{k: v for k, v in os.environ.items() if k not in ("NOTIFY_SOCKET", "WATCHDOG_USEC")},
        "GOMP_SPINCOUNT": str(gomp_spincount),
        "GGML_NO_BACKTRACE": "1",
        "PYTHONUNBUFFERED": "1",
    }


def _oom_kills() -> int:
    """Kills by the kernel's OOM killer since boot, in our memory cgroup where it tells."""
    for path, key in ((_cgroup_events(), "oom_kill"), (Path("/proc/vmstat"), "oom_kill")):
        with contextlib.suppress(OSError, ValueError):
            for row in path.read_text().splitlines():
                name, _, value = row.partition(" ")
                if name == key:
                    return int(value)
    return 0


def _cgroup_events() -> Path:
    """memory.events of our own cgroup v2; a path that does not exist elsewhere."""
    with contextlib.suppress(OSError):
        for row in Path("/proc/self/cgroup").read_text().splitlines():
            if row.startswith("0::"):
                return Path("/sys/fs/cgroup") / row[3:].lstrip("/") / "memory.events"
    return Path("/nonexistent")
