"""Asks web servers for files and parts of files: redirects, proxies, certificates, waits.

TLS keeps strangers from looking on; nothing is believed because of it. Bytes are handed out
as they come and are judged by others. Everything that goes wrong is Unavailable, with the
reason; https: only, unless the configuration allows http: as well.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.utils import get_environ_proxies

from stoker_ota.core import web_rules
from stoker_ota.drivers.brake import Brake
from stoker_ota.errors import InvalidRequest, Unavailable
from stoker_ota.values.fetching import Link

CONNECT_S: Final = 15.0
READ_S: Final = 30.0
READ_BYTES: Final = 64 << 10
SLOW_S: Final = 60.0
SLOW_BYTES: Final = 4 << 10
"""Less than this in a minute is no source but a way to hold us up."""
MAX_ASKS: Final = 3
SYSTEM_CA: Final = Path("/etc/ssl/certs/ca-certificates.crt")
AGENT: Final = "stoker-fetch/1"
_BUSY: Final = (429, 503)
_BROKEN: Final = (500, 502, 504)


@dataclass(frozen=True)
class Body:
    """An answer. ``ranged``: a part, from ``begin`` on; else the whole. ``length``: bytes that
    follow, -1 = not told; a connection that breaks off ends them early. ``mark``: see
    ``web_rules.validator``.
    """

    ranged: bool
    begin: int
    length: int
    mark: str
    stream: Iterator[bytes]


class Web:
    """One session: connections are kept open. Not for several threads."""

    def __init__(self, link: Link, brake: Brake | None = None) -> None:
        self._link, self._brake = link, brake or Brake(0)
        self._session = requests.Session()
        self._session.trust_env = False  # no .netrc, no other lists of authorities
        self._session.mount("https://", HTTPAdapter(max_retries=0))
        self._session.mount("http://", HTTPAdapter(max_retries=0))
        self._session.headers.clear()
        self.broken = ""  # why the last body ended early

    def close(self) -> None:
        self._session.close()

    def small(self, address: str, most: int) -> bytes | None:
        """A whole small file; None when there is none. Unavailable, also when it is longer."""
        body = self.open(address)
        if body is None:
            return None
        data = bytearray()
        for piece in body.stream:
            data += piece
            if len(data) > most:
                raise Unavailable(f"cannot use {address}: it has more than {most} bytes")
        if self.broken or (body.length >= 0 and len(data) != body.length):
            raise Unavailable(f"cannot read {address}: it ended early {self.broken}".rstrip())
        return bytes(data)

    def open(
        self, address: str, begin: int = 0, end: int = 0, total: int = 0, mark: str = ""
    ) -> Body | None:
        """Bytes [begin, end) of a file of ``total`` bytes, or the whole of it when ``end`` is 0;
        None when there is no such file. A server without ranges (or a file that changed since
        ``mark``) answers with the whole.
        """
        headers = {"User-Agent": AGENT, "Accept": "*/*", "Accept-Encoding": "identity"}
        if end:
            headers["Range"] = f"bytes={begin}-{end - 1}"
            if mark:
                headers["If-Range"] = mark
        answer = self._answer(address, headers)
        if answer is None:
            return None
        if answer.headers.get("Content-Encoding", "identity") != "identity":
            answer.close()
            raise Unavailable(f"cannot use {address}: its bytes are packed")
        found = web_rules.validator(answer.headers.get("ETag"), answer.headers.get("Last-Modified"))
        try:
            if answer.status_code == requests.codes.partial_content:
                length = web_rules.check_range(
                    answer.headers.get("Content-Range", ""), begin, total
                )
                return Body(True, begin, length, found, self._stream(answer, address, length))
            length = _length(answer)
            if total and length not in (-1, total):
                raise Unavailable(f"cannot use {address}: it has {length} bytes, not {total}")
        except Unavailable:
            answer.close()
            raise
        return Body(False, 0, length, found, self._stream(answer, address, length))

    def _answer(self, address: str, headers: Mapping[str, str]) -> Any:
        """A 200 or 206, after redirects and, where the server asks for it, a wait; None = 404."""
        for ask in range(MAX_ASKS):
            answer = self._redirected(address, headers)
            status = answer.status_code
            if status in (200, 206):
                return answer
            told = web_rules.retry_after_s(answer.headers.get("Retry-After"), datetime.now(UTC))
            answer.close()
            if status in (404, 410):
                return None
            if status not in (*_BUSY, *_BROKEN):
                raise Unavailable(f"cannot fetch {address}: the server says {status}")
            wait_s = told if told is not None else 2.0**ask
            if wait_s > web_rules.MAX_WAIT_S or ask + 1 == MAX_ASKS:
                raise Unavailable(
                    f"cannot fetch {address}: the server is busy ({status})",
                    details={"retry_after_s": wait_s},
                )
            time.sleep(wait_s + random.uniform(0, 1) * min(1.0, wait_s))
        raise AssertionError("the last round raises or returns")

    def _redirected(self, address: str, headers: Mapping[str, str]) -> Any:
        plain, first = self._link.plain_http, address
        web_rules.address(address, plain=plain)
        for _ in range(web_rules.MAX_REDIRECTS + 1):
            answer = self._get(address, headers, known=web_rules.same_host(first, address))
            if answer.status_code not in web_rules.REDIRECTS:
                return answer
            location = answer.headers.get("Location", "")
            answer.close()
            address = web_rules.redirected(address, location, plain=plain)
        raise Unavailable(f"cannot fetch {first}: it is redirected too often")

    def _get(self, address: str, headers: Mapping[str, str], *, known: bool) -> Any:
        tls = self._link.tls
        certificate = (tls.certificate, tls.key) if tls.certificate and known else None
        try:
            return self._session.get(
                address, headers=headers, stream=True, allow_redirects=False,
                timeout=(CONNECT_S, READ_S), proxies=self._proxies(address),
                verify=_authorities(tls.ca), cert=certificate,
            )  # fmt: skip
        except requests.exceptions.SSLError as error:
            raise Unavailable(
                f"cannot fetch {address}: {_reason(error)}",
                hint="[updates] ca names whom to believe",
            ) from error
        except (requests.RequestException, OSError) as error:
            raise Unavailable(f"cannot fetch {address}: {_reason(error)}") from error
        except ValueError as error:  # an address that requests cannot parse
            raise InvalidRequest(f"cannot fetch {address}: {error}") from error

    def _proxies(self, address: str) -> dict[str, str]:
        match self._link.proxy:
            case "":
                return dict(get_environ_proxies(address, no_proxy=None))
            case "none":
                return {}
            case proxy:
                return {"http": proxy, "https": proxy}

    def _stream(self, answer: Any, address: str, length: int) -> Iterator[bytes]:
        """At most ``length`` bytes as they come; ends early when the connection does."""
        left, self.broken = length, ""
        since_s, slow = time.monotonic(), 0
        try:
            while left:
                most = READ_BYTES if left < 0 else min(READ_BYTES, left)
                data: bytes = answer.raw.read(most, decode_content=False)
                if not data:
                    return
                left -= len(data) if left > 0 else 0
                slow += len(data)
                self._brake(len(data))
                yield data
                if time.monotonic() - since_s > SLOW_S:
                    if slow < SLOW_BYTES:
                        raise Unavailable(f"cannot fetch {address}: it comes too slowly")
                    since_s, slow = time.monotonic(), 0
        except (urllib3.exceptions.HTTPError, OSError) as error:
            self.broken = _reason(error)
        finally:
            answer.close()


def _authorities(ca: str) -> str | bool:
    """The configured file, else Debian's list, else the library's own."""
    return ca or (str(SYSTEM_CA) if SYSTEM_CA.exists() else True)


def _length(answer: Any) -> int:
    if "Transfer-Encoding" in answer.headers:
        return -1
    return web_rules.told_length(answer.headers.get("Content-Length", ""))


def _reason(error: BaseException) -> str:
    """The innermost words: requests wraps urllib3, which wraps the system's error."""
    found: BaseException = error
    for _ in range(8):
        inner = getattr(found, "reason", None)
        if not isinstance(inner, BaseException):
            inner = next((a for a in found.args if isinstance(a, BaseException)), None)
        if inner is None:
            break
        found = inner
    text = getattr(found, "strerror", None) or str(found) or type(found).__name__
    return str(text)[:300]
