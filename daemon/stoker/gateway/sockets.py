"""Listening sockets: those that systemd has opened (LISTEN_FDS), else our own."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

from stoker.gateway.settings import Settings, SettingsError

_FIRST_FD: Final = 3  # sd_listen_fds(3)
_BACKLOG: Final = 128
UNIX_MODE: Final = 0o666  # everybody may ask, as on the bus


def passed(environ: MutableMapping[str, str]) -> list[socket.socket]:
    """What systemd handed over, and the variables that said so are gone."""
    pid, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count.isdecimal():
        return []
    found = []
    for fd in range(_FIRST_FD, _FIRST_FD + int(count)):
        os.set_inheritable(fd, False)
        found.append(socket.socket(fileno=fd))
    return found


def opened(settings: Settings) -> list[socket.socket]:
    """Raises SettingsError."""
    found: list[socket.socket] = []
    try:
        for address in settings.listen:
            found.append(_inet(address))
        if settings.unix:
            found.append(_unix(Path(settings.unix)))
    except BaseException:
        for sock in found:
            sock.close()
        raise
    if not found:
        raise SettingsError("cannot listen: neither listen nor unix names a socket")
    return found


def names(sockets: list[socket.socket]) -> list[str]:
    """For people: http://127.0.0.1:8470, unix:/run/stoker/gateway.sock."""
    found = []
    for sock in sockets:
        name = sock.getsockname()
        if sock.family == socket.AF_UNIX:
            found.append(f"unix:{name}")
        else:
            host = f"[{name[0]}]" if sock.family == socket.AF_INET6 else name[0]
            found.append(f"http://{host}:{name[1]}")
    return found


def _inet(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return _listening(sock, (host, int(port)), address)


def _unix(path: Path) -> socket.socket:
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode) and not _answered(path):
            path.unlink()  # its owner is dead
    sock = _listening(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), str(path), str(path))
    path.chmod(UNIX_MODE)
    return sock


def _answered(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def _listening(sock: socket.socket, where: object, name: str) -> socket.socket:
    try:
        sock.bind(where)  # type: ignore[arg-type]
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise SettingsError(f"cannot listen on {name}: {error.strerror or error}") from error
    return sock
