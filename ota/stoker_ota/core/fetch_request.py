"""A request to the fetching child as one line of JSON, and back. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from stoker_ota.core import fields, strict_json
from stoker_ota.errors import InvalidRequest, OtaError
from stoker_ota.getters import Table
from stoker_ota.values.chunks import MAX_CHUNK_BYTES, MIN_CHUNK_BYTES, Chunks
from stoker_ota.values.fetching import (
    Broker,
    DocumentsRequest,
    Link,
    ObjectRequest,
    Request,
    Tls,
    Wanted,
)

MAX_REQUEST_BYTES: Final = 256 << 10
MAX_BYTES: Final = 1 << 40
MAX_WINDOW: Final = 64
_MAX_PATH_BYTES: Final = 4096
_VERSION: Final = (1 << 53) - 1


def encode(request: Request) -> bytes:
    kind = "object" if isinstance(request, ObjectRequest) else "documents"
    return strict_json.dumps({kind: asdict(request)}) + b"\n"


def decode(data: bytes) -> Request:
    """InvalidRequest, TooLarge, BadDocument."""
    value = strict_json.loads(data, max_bytes=MAX_REQUEST_BYTES, what="request")
    table = Table(value, _fail)
    found: Request
    if table.has("object"):
        inner = table.table("object")
        found = ObjectRequest(
            part=_path(inner, "part"),
            wanted=_wanted(inner.table("wanted")),
            link=_link(inner.table("link")),
            base=inner.text("base", max_bytes=_MAX_PATH_BYTES),
            delay_s=inner.number("delay_s", low=0.0, high=86_400.0),
        )
    else:
        inner = table.table("documents")
        found = DocumentsRequest(
            folder=_path(inner, "folder"),
            base=inner.text("base", max_bytes=_MAX_PATH_BYTES),
            trust_version=inner.whole("trust_version", low=0, high=_VERSION),
            link=_link(inner.table("link")),
        )
    inner.finish()
    table.finish()
    return found


def _wanted(table: Table) -> Wanted:
    wanted = Wanted(
        size=table.whole("size", low=0, high=MAX_BYTES),
        sha256=fields.sha256(table, "sha256"),
        uris=table.texts("uris", max_items=32),
        chunks=_chunks(table),
        max_rate=table.whole("max_rate", low=0, high=MAX_BYTES),
        allow_metered=table.flag("allow_metered"),
    )
    table.finish()
    return wanted


def _chunks(table: Table) -> Chunks | None:
    if table.raw("chunks") is None:
        return None
    inner = table.table("chunks")
    found = Chunks(
        inner.whole("size", low=MIN_CHUNK_BYTES, high=MAX_CHUNK_BYTES), fields.sha256(inner, "root")
    )
    inner.finish()
    return found


def _link(table: Table) -> Link:
    link = Link(
        tls=_tls(table.table("tls")),
        proxy=table.text("proxy", max_bytes=2048),
        plain_http=table.flag("plain_http"),
        max_rate=table.whole("max_rate", low=0, high=MAX_BYTES),
        window=table.whole("window", low=1, high=MAX_WINDOW),
        broker=None if table.raw("broker") is None else _broker(table.table("broker")),
    )
    table.finish()
    return link


def _broker(table: Table) -> Broker:
    names = ("host", "path", "root", "client_id", "username", "password_file")
    texts = {name: table.text(name, max_bytes=_MAX_PATH_BYTES) for name in names}
    tls = None if table.raw("tls") is None else _tls(table.table("tls"))
    broker = Broker(port=table.whole("port", low=0, high=65535), tls=tls, **texts)
    table.finish()
    return broker


def _tls(table: Table) -> Tls:
    names = ("ca", "certificate", "key")
    tls = Tls(**{name: table.text(name, max_bytes=_MAX_PATH_BYTES) for name in names})
    table.finish()
    return tls


def _path(table: Table, key: str) -> str:
    path = table.text(key, max_bytes=_MAX_PATH_BYTES)
    if not path.startswith("/"):
        table.refuse(key, "is no absolute path")
    return path


def _fail(path: str, reason: str) -> OtaError:
    return InvalidRequest(f"cannot read the request: {path}: {reason}")
