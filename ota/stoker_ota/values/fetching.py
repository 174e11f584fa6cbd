"""What is to be fetched, over which link, from which broker; as the engine and its child say it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from stoker_ota.values.chunks import Chunks

DEFAULT_WINDOW: Final = 8
"""Subscriptions at a time: some brokers give a client no more than ten."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One object. ``uris`` in the order to try; ``max_rate`` bytes a second, 0 = no limit."""

    size: int
    sha256: str
    uris: tuple[str, ...]
    chunks: Chunks | None = None
    max_rate: int = 0
    allow_metered: bool = True


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of PEM files, "" = none. ``ca``: whom to believe, "" = the system's list."""

    ca: str = ""
    certificate: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class Broker:
    """``path``: of a Unix socket, instead of host and port. ``tls`` None = plain."""

    host: str = ""
    port: int = 8883
    path: str = ""
    root: str = "stoker/1"
    client_id: str = ""
    username: str = ""
    password_file: str = ""
    tls: Tls | None = field(default_factory=Tls)


@dataclass(frozen=True, slots=True)
class Link:
    """``proxy``: an address, "none", or "" = as the environment says. ``plain_http``: http: is
    as good as https: (nothing is believed because of TLS, but everybody could look on).
    """

    tls: Tls = field(default_factory=Tls)
    proxy: str = ""
    plain_http: bool = False
    max_rate: int = 0
    window: int = DEFAULT_WINDOW
    broker: Broker | None = None


@dataclass(frozen=True, slots=True)
class ObjectRequest:
    """``part``: the file to fill. ``base``: where a bundle's ``file:`` addresses are, "" =
    nowhere. ``delay_s``: to wait first, so that a fleet does not begin at once.
    """

    part: str
    wanted: Wanted
    link: Link
    base: str = ""
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class DocumentsRequest:
    """Trust after ``trust_version``, the catalog and its manifests, from ``base`` into a folder."""

    folder: str
    base: str
    trust_version: int
    link: Link


Request = ObjectRequest | DocumentsRequest
