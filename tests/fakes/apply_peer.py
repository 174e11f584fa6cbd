"""A process in the applier's place that does not behave: ``python -m tests.fakes.apply_peer``.

Takes the same words and the same job as ``stoker_ota.apply``; STOKER_APPLY_PEER says what it does
instead. Writes its process ID into the part, so that a test can see that it is gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping

from stoker_ota.drivers import apply_link

Deed = Callable[[socket.socket, int], object]
_LINE = b'{"phase": "apply", "done": 1, "total": 2}\n'
_ESCAPES = rb'{"error": {"code": "cancelled", "message": "\u001b[2Jcannot\nstop"}}' + b"\n"


def _for_ever(data: bytes) -> Deed:
    def act(link: socket.socket, _part: int) -> None:
        with contextlib.suppress(OSError):
            while True:
                link.sendall(data)

    return act


def _say(data: bytes) -> Deed:
    return lambda link, _part: link.sendall(data)


def _killed(signum: int) -> Deed:
    return lambda _link, _part: os.kill(os.getpid(), signum)


def _grow(_link: socket.socket, part: int) -> None:
    for megabyte in range(1, 64):
        os.pwrite(part, bytes(1 << 20), megabyte << 20)
        time.sleep(0.05)


def _lie_and_stay(link: socket.socket, _part: int) -> None:
    link.sendall(b'{"applied": true}\n')
    time.sleep(30)


def _whisper(link: socket.socket, _part: int) -> None:
    """Never silent, never done."""
    with contextlib.suppress(OSError):
        while True:
            link.sendall(_LINE)
            time.sleep(0.01)


DEEDS: Mapping[str, Deed] = {
    "floods": _for_ever(_LINE * 1000),
    "never ends a line": _for_ever(b"a" * 4000),
    "talks nonsense": _say(b"\xff\xfe\n"),
    "nests": _say(b"[" * 3000 + b"\n"),
    "says a huge number": _say(b'{"phase": "apply", "done": 1, "total": 1' + b"0" * 900 + b"}\n"),
    "invents a code": _say(_ESCAPES),
    "lies": _say(b'{"applied": true}\n'),
    "lies and stays": _lie_and_stay,
    "says nothing": lambda _link, _part: time.sleep(60),
    "whispers": _whisper,
    "grows": _grow,
    "leaves": lambda _link, _part: None,
    "crashes": _killed(signal.SIGSEGV),
    "is killed": _killed(signal.SIGKILL),
    "is stopped": _killed(signal.SIGTERM),
}


def main(words: list[str]) -> int:
    options = dict(zip(words[::2], words[1::2], strict=True))
    if "--fd" in options:
        link = socket.socket(fileno=int(options["--fd"]))
    else:
        link = socket.socket(socket.AF_UNIX)
        link.connect(options["--connect"])
    _job, passed = apply_link.receive(link)
    os.pwrite(passed[2], f"{os.getpid()}\n".encode(), 0)
    DEEDS[os.environ["STOKER_APPLY_PEER"]](link, passed[2])
    return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
