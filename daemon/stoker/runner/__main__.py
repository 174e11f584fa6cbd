"""``python -m stoker.runner --fd N|--connect PATH --engine llama|echo``: wiring of the runner.

Ends with 0 when the agent closes the socket, 76 on a broken frame, 74 when the agent
does not read, 69 when the engine cannot be used.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from stoker.errors import StokerError
from stoker.runner.engine import Engine
from stoker.runner.gather import EVERY_S
from stoker.runner.loop import Loop
from stoker.runner.notice import WatchedChannel, notify
from stoker.runner.placement import MODES, Placement
from stoker.runner.realtime import HIGHEST, RealTime

EXIT_USAGE: Final = 64
EXIT_UNAVAILABLE: Final = 69
_PR_SET_PDEATHSIG: Final = 1
_log = logging.getLogger("stoker.runner")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    logging.basicConfig(
        stream=sys.stderr, level=options.log_level.upper(), format="%(name)s: %(message)s"
    )
    if options.die_with_parent:
        _die_with(os.getppid())
    # Ctrl-C in a terminal goes to the whole group; the agent decides when we end
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        sock = _socket(options)
    except OSError as error:
        _log.error("cannot reach the agent: %s", error)
        return EXIT_USAGE
    notify("READY=1")
    placement = Placement(options.pin, cpus=options.cpus, nice=options.nice)
    realtime = RealTime(options.fifo, placement) if options.fifo else None
    if realtime is not None:
        realtime.start()
    placement.pin()
    try:
        engine = _engine(options)
    except StokerError as error:
        _log.error("%s", error.message)
        return EXIT_UNAVAILABLE
    loop = Loop(
        engine,
        lambda note: WatchedChannel(sock, note, placement.free),
        pings=not options.no_ping,
        scratch=Path(options.scratch) if options.scratch else None,
        placed=lambda threads: _placed(placement, realtime, threads),
        frame_s=options.frame_ms / 1e3,
    )
    gc.freeze()  # what is there now lives as long as the process
    loop.start(on_stuck=lambda: os._exit(0))
    return loop.run()


def _placed(placement: Placement, realtime: RealTime | None, threads: int) -> dict[str, Any]:
    """After a load, when all compute threads are there: where they run, as the kernel says."""
    placement.prefer()
    notes = [placement.note()]
    if realtime is not None:
        realtime.apply(threads)
        notes.append(f"not real-time: {realtime.refused}" if realtime.refused else "")
    note = "; ".join(filter(None, notes))
    if note:
        _log.warning("compute threads: %s", note)
    return {
        "pinning": placement.pinning(),
        "scheduling": placement.scheduling(),
        "placement_note": note,
        "placement_cpus": ",".join(map(str, placement.cpus())),
        "nice": placement.nice(),
    }


def _engine(options: argparse.Namespace) -> Engine:
    if options.engine == "echo":
        from stoker.runner.echo import EchoEngine

        return EchoEngine(faults=options.echo_faults)
    from stoker.runner.library import Library
    from stoker.runner.llama import LlamaEngine

    libraries = Path(options.libraries) if options.libraries else None
    return LlamaEngine(Library(libraries), now=lambda: datetime.datetime.now().astimezone())


def _socket(options: argparse.Namespace) -> socket.socket:
    """The agent's end of the link: inherited, or waiting at a path (the packaged unit)."""
    if options.connect is not None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(options.connect)
        return sock
    sock = socket.socket(fileno=options.fd)
    if sock.type != socket.SOCK_STREAM:
        raise OSError(f"file descriptor {options.fd} is not a stream socket")
    return sock


def _die_with(parent: int) -> None:
    """SIGKILL when the parent's thread that started us ends; so only on request."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="stoker-runner", description=__doc__)
    link = parser.add_mutually_exclusive_group(required=True)
    link.add_argument("--fd", type=int, help="connected stream socket")
    link.add_argument("--connect", metavar="PATH", help="the agent's listening socket")
    parser.add_argument("--engine", choices=("llama", "echo"), default="llama")
    parser.add_argument("--echo-faults", action="store_true", help="echo: let prompts misbehave")
    parser.add_argument(
        "--scratch",
        metavar="DIR",
        default=os.environ.get("CACHE_DIRECTORY"),  # which systemd makes for the unit
        help="where states of conversations may be saved; none: nothing is",
    )
    parser.add_argument(
        "--pin", choices=MODES, default="off", help="compute threads one to one on our CPUs, or set"
    )
    parser.add_argument(
        "--cpus", type=_numbers, default=(), metavar="N,N", help="CPUs of --pin set"
    )
    parser.add_argument(
        "--nice", type=int, default=0, metavar="N", help="niceness of compute threads there"
    )
    parser.add_argument(
        "--fifo", type=int, default=0, metavar="N", help=f"their FIFO priority, 1..{HIGHEST}"
    )
    parser.add_argument(
        "--libraries",
        metavar="DIR",
        default=os.environ.get("STOKER_RUNNER_LIBRARIES"),
        help="where libllama.so is, instead of the package's own folder",
    )
    parser.add_argument(
        "--frame-ms", type=float, default=EVERY_S * 1e3, metavar="MS",
        help="tokens of quick steps wait so long for each other",
    )  # fmt: skip
    parser.add_argument("--no-ping", action="store_true", help="decode without pings (tests)")
    parser.add_argument(
        "--die-with-parent", action="store_true", help="be killed when the starting thread ends"
    )
    parser.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), default="warning"
    )
    return parser


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    # no interpreter shutdown: the engine's threads may still spin, and nothing is to be saved
    os._exit(status)
