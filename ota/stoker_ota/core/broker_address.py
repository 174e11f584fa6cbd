"""A broker's address as configuration and command lines write it. Pure.

mqtts://HOST[:PORT]   TLS, 8883        mqtt://localhost[:PORT]   plain, 1883, this machine only
unix:/PATH            a socket on this machine
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from stoker_ota.core.loopback import is_loopback
from stoker_ota.core.topics import DEFAULT_ROOT, Topics
from stoker_ota.errors import InvalidRequest
from stoker_ota.values.fetching import Broker, Tls

PORTS: Final = {"mqtts": 8883, "mqtt": 1883}
_HOST: Final = re.compile(r"[A-Za-z0-9._:-]{1,253}")


def broker(  # one argument a setting
    address: str,
    *,
    root: str = DEFAULT_ROOT,
    tls: Tls | None = None,
    client_id: str = "",
    username: str = "",
    password_file: str = "",
) -> Broker:
    """InvalidRequest for an address or a root that cannot be one. ``tls`` matters for mqtts:."""
    Topics(root)  # judges it
    who = {"client_id": client_id, "username": username, "password_file": password_file}
    if address.startswith("unix:/"):
        return Broker(path=address.removeprefix("unix:"), port=0, root=root, tls=None, **who)
    try:
        parts = urlsplit(address)
        port, host = parts.port, parts.hostname or ""
    except ValueError:
        port, host = None, ""
    rest = address.partition("://")[2]
    scheme = address.partition("://")[0]
    wrong = scheme not in PORTS or not _HOST.fullmatch(host)
    if wrong or "@" in rest or "/" in rest.rstrip("/"):
        raise InvalidRequest(
            f"cannot use {address[:100]!r} as a broker",
            hint="mqtts://HOST, mqtt://localhost:PORT or unix:/PATH",
        )
    if scheme == "mqtt" and not is_loopback(host):
        raise InvalidRequest(
            f"cannot use {address[:100]!r} as a broker: without TLS only this machine's own may be",
            hint=f"mqtts://{host}",
        )
    secure = (tls or Tls()) if scheme == "mqtts" else None
    return Broker(host, port or PORTS[scheme], root=root, tls=secure, **who)
