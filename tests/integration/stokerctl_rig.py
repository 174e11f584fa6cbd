"""stokerctl as a process: on pipes, and on a terminal of its own."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

COMMAND = [sys.executable, "-m", "stoker.cli.main"]
Done = subprocess.CompletedProcess[str]


def ctl(env: Mapping[str, str], *words: str, stdin: str | None = None) -> Done:
    """One run to its end; without ``stdin`` that is /dev/null."""
    given: dict[str, object] = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [*COMMAND, *words],
        check=False,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        **given,
    )


class Typed:
    """A program at a terminal: ``enter`` keys (``\\x03`` is Ctrl-C), ``see`` what appears."""

    def __init__(self, env: Mapping[str, str], *command: str, cwd: Path | None = None) -> None:
        self._master, slave = pty.openpty()
        self.seen = ""
        self._mark = 0

        self.process = subprocess.Popen(
            # setsid --ctty: the keys' signals go to this program alone
            ["setsid", "--ctty", "--wait", *(command or COMMAND)],
            env={**env, "TERM": "xterm"},
            cwd=cwd,
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)

    def enter(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def see(self, pattern: str, timeout_s: float = 10.0) -> str:
        """Wait for a match after the last one; control sequences are taken out."""
        end = time.monotonic() + timeout_s
        while True:
            found = re.compile(pattern, re.DOTALL).search(self.text(), self._mark)
            if found:
                self._mark = found.end()
                return found.group()
            assert time.monotonic() < end, f"{pattern!r} not in {self.text()[self._mark :]!r}"
            if not self._read(0.1) and self.process.poll() is not None:
                raise AssertionError(f"ended; {pattern!r} not in {self.text()[self._mark :]!r}")

    def text(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.seen).replace("\r\n", "\n")

    def end(self, timeout_s: float = 30.0) -> int:
        """Its exit status; reads on, so that it cannot block on a full terminal."""
        limit = time.monotonic() + timeout_s
        while self.process.poll() is None:
            assert time.monotonic() < limit, f"still running: {self.text()!r}"
            self._read(0.05)
        while self._read(0):
            pass
        return self.process.returncode

    def _read(self, wait_s: float) -> bool:
        if not select.select([self._master], [], [], wait_s)[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # EIO: the last one who had it open is gone
            return False
        self.seen += data.decode(errors="replace")
        return bool(data)

    def __enter__(self) -> Typed:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)
