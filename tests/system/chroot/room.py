"""A Debian unpacked into a folder, and commands in it. Nothing runs there when a command is over.

chroot is enough. Where mounting is allowed, each command has a /proc of its own that goes with it.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.system.vm.guest import Done

_ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/nonexistent",
    "LC_ALL": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
}
_WITH_PROC = ("unshare", "--mount", "sh", "-c",
              'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"')  # fmt: skip

_BESIDE_PROC = ("unshare", "--mount", "sh", "-c", 'mount -t proc proc "$0/proc" && exec "$@"')


@dataclass(slots=True)
class Room:
    """``cpu``: the processor that qemu plays, "" without emulation."""

    root: Path
    entry: tuple[str, ...]
    cpu: str = ""

    @classmethod
    def unpack(cls, tar: Path, root: Path) -> Room:
        root.mkdir()
        subprocess.run(["tar", "-C", root, "-xf", tar, "--numeric-owner"], check=True)
        (root / "dev/shm").chmod(0o1777)  # as on every booted Debian
        entry = (*_WITH_PROC, str(root))
        tried = subprocess.run([*entry, "true"], check=False, capture_output=True)
        return cls(root, entry if tried.returncode == 0 else ("chroot", str(root)))

    def run(
        self, argv: Sequence[str] | str, *, user: str = "root", timeout_s: float = 120.0
    ) -> Done:
        """A string goes through sh -c. Code 124 = it took too long."""
        words = ("sh", "-c", argv) if isinstance(argv, str) else tuple(argv)
        group = "nogroup" if user == "nobody" else user
        become = (
            ()
            if user == "root"
            else ("setpriv", f"--reuid={user}", f"--regid={group}", "--init-groups", "--")
        )
        environment = {**_ENVIRONMENT, **({"QEMU_CPU": self.cpu} if self.cpu else {})}
        return _run(words, (*self.entry, *become, *words), environment, timeout_s)

    def beside(self, argv: Sequence[str], *, timeout_s: float) -> Done:
        """A program of this machine that works on the room, which has a /proc if it can."""
        words = tuple(argv)
        around = (*_BESIDE_PROC, str(self.root)) if self.entry[0] == _WITH_PROC[0] else ()
        return _run(words, (*around, *words), dict(os.environ), timeout_s)

    def text(self, argv: Sequence[str] | str, *, user: str = "root") -> str:
        """What a command that must work prints."""
        return self.run(argv, user=user).must().text


def _run(
    words: tuple[str, ...], argv: Sequence[str], environment: Mapping[str, str], timeout_s: float
) -> Done:
    began = time.monotonic()
    done = subprocess.run(
        ["timeout", "-k", "5", str(timeout_s), *argv],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
        env=environment, check=False,
    )  # fmt: skip
    return Done(words, done.returncode, done.stdout, done.stderr, time.monotonic() - began)
