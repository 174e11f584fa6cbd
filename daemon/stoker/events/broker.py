"""Where a broker is, as one address that a configuration file can hold. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from stoker_ota.core.loopback import is_loopback

PORTS: Final = {"mqtts": 8883, "mqtt": 1883}


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """``path`` is set for a Unix socket, ``host`` and ``port`` otherwise."""

    host: str = ""
    port: int = 0
    path: str = ""
    tls: bool = False


def parse(text: str) -> BrokerAddress:
    """mqtts://HOST[:PORT], mqtt://LOOPBACK[:PORT] or unix:/PATH. ValueError says what is wrong."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:").removeprefix("//")
        if not path.startswith("/") or "\0" in path or len(path.encode()) > 100:
            raise ValueError("a socket is unix:/PATH of at most 100 bytes")
        return BrokerAddress(path=path)
    parts = urlsplit(text)
    if parts.scheme not in PORTS or not parts.hostname:
        raise ValueError("is not mqtts://HOST[:PORT], mqtt://localhost[:PORT] or unix:/PATH")
    if parts.username is not None or parts.password is not None:
        raise ValueError("user and password have keys of their own")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError("nothing may follow the port")
    port = parts.port or PORTS[parts.scheme]
    tls = parts.scheme == "mqtts"
    if not tls and not is_loopback(parts.hostname):
        raise ValueError("without TLS only this machine's own broker may be used: mqtts://")
    return BrokerAddress(parts.hostname, port, tls=tls)
