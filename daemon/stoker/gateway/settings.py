"""The gateway's settings: /etc/stoker/gateway.toml, then the command line.

policies/gateway.toml documents every key with its default (a test compares them).
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

DEFAULT_PATH: Final = Path("/etc/stoker/gateway.toml")


class SettingsError(Exception):
    """``cannot read settings: …``."""


@dataclass(frozen=True, slots=True)
class Settings:
    bus: str = "system"  # system | session | a D-Bus address
    listen: tuple[str, ...] = ("127.0.0.1:8470",)  # unused when systemd brings the sockets
    unix: str = "/run/stoker/gateway.sock"  # likewise; "" = none
    tokens: str = ""  # file of bearer tokens for TCP; "" = none needed
    hosts: tuple[str, ...] = ()  # names beside localhost that a Host header may have
    origins: tuple[str, ...] = ()  # web pages that may ask, e.g. http://localhost:3000
    max_connections: int = 64
    max_body_bytes: int = 1 << 20
    header_timeout_s: float = 10.0
    body_timeout_s: float = 30.0
    keepalive_s: float = 15.0  # silence in a stream after which a comment is sent
    idle_exit_s: float = 600.0  # without a connection, where systemd starts us; 0 = never

    @property
    def max_connections_of_one(self) -> int:
        """Of one user, or of TCP as a whole: nobody's connections shut the others out."""
        return max(1, self.max_connections * 3 // 4)


def _text(pattern: str, what: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise ValueError(f"{value!r} is not {what}")
        return value

    return read


def _each(read: Callable[[Any], str]) -> Callable[[Any], tuple[str, ...]]:
    def each(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or len(value) > 64:
            raise ValueError("not a list of at most 64")
        return tuple(read(item) for item in value)

    return each


def _number(low: float, high: float, kind: type = float) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        fits = isinstance(value, int if kind is int else (int, float))
        if isinstance(value, bool) or not fits or not low <= value <= high:
            raise ValueError(f"{value!r} is not in {low:g}..{high:g}")
        return kind(value)

    return read


def loopback(value: Any) -> str:
    """``ADDRESS:PORT`` of this machine alone; the door speaks no TLS."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not an address")
    host, colon, port = value.rpartition(":")
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError as error:
        raise ValueError(f"{value!r} is not ADDRESS:PORT such as 127.0.0.1:8470") from error
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{value!r} has no port of 0..65535")
    if not address.is_loopback:
        raise ValueError(f"{host} is no loopback address: put a proxy with TLS in front")
    return value


_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "bus": _text(r"system|session|[a-z-]+:\S+=\S*", "system, session or a D-Bus address"),
    "listen": _each(loopback),
    "unix": _text(r"(/[^\0]{1,106})?", "an absolute path of at most 107 bytes"),
    "tokens": _text(r"(/[^\0]*)?", "an absolute path"),
    "hosts": _each(_text(r"[A-Za-z0-9.-]{1,253}", "a host's name")),
    "origins": _each(_text(r"https?://[^\s/]+", "an origin such as http://localhost:3000")),
    "max_connections": _number(1, 4096, int),
    "max_body_bytes": _number(1024, 16 << 20, int),
    "header_timeout_s": _number(0.1, 600.0),
    "body_timeout_s": _number(0.1, 3600.0),
    "keepalive_s": _number(0.1, 3600.0),
    "idle_exit_s": _number(0.0, 86_400.0),
}


def load(path: Path | None) -> Settings:
    """None = the file of the package, if it is there. Raises SettingsError."""
    where = path or DEFAULT_PATH
    try:
        data = tomllib.loads(where.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        if path is None:
            return Settings()
        raise SettingsError(f"cannot read settings: {where} is not there") from error
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(f"cannot read settings: {where}: {error}") from error
    return changed(Settings(), data, str(where))


def changed(settings: Settings, data: Mapping[str, Any], where: str) -> Settings:
    """With what ``data`` says. Raises SettingsError."""
    values: dict[str, Any] = {}
    for key, value in data.items():
        if key not in _READ:
            raise SettingsError(f"cannot read settings: {where}: {key}: no such key")
        try:
            values[key] = _READ[key](value)
        except ValueError as error:
            raise SettingsError(f"cannot read settings: {where}: {key}: {error}") from error
    return replace(settings, **values)


def keys() -> tuple[str, ...]:
    return tuple(each.name for each in fields(Settings))
