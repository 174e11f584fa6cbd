"""Where a local door listens: ``127.0.0.1:9469``, ``[::1]:9469`` or ``unix:/run/x.sock``."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Address:
    """Of a unix socket (``path``), or loopback ``host`` and ``port`` (0 = any free one)."""

    path: str = ""
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Raises ValueError with the reason. Names are not looked up: only loopback numbers pass."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path.startswith("/") or "\0" in path or len(path.encode()) > 107:
            raise ValueError(f"{text!r} is not unix: and an absolute path of at most 107 bytes")
        return Address(path=path)
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{text!r} is not HOST:PORT or unix:PATH")
    try:
        number = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError as error:
        raise ValueError(f"{host!r} is not an IP address such as 127.0.0.1") from error
    if not number.is_loopback:
        raise ValueError(f"{number} is not a loopback address; a scraper elsewhere needs a proxy")
    return Address(host=str(number), port=int(port))
