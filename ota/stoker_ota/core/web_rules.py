"""What a web server may say and what follows from it: addresses, ranges, redirects, waits. Pure.

Source: RFC 9110 (sections 8.8, 10.2.3, 14), RFC 9112.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import urljoin, urlsplit

from stoker_ota.errors import InvalidRequest, Unavailable

MAX_REDIRECTS: Final = 5
REDIRECTS: Final = (301, 302, 303, 307, 308)
MAX_WAIT_S: Final = 60.0
_CONTENT_RANGE: Final = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19})")
_MAX_ADDRESS: Final = 4096


def address(text: str, *, plain: bool) -> str:
    """An address that may be asked: https:, or http: where ``plain`` allows it. InvalidRequest."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidRequest(f"cannot fetch {text[:200]!r}: {error}") from error
    allowed = ("https", "http") if plain else ("https",)
    if parts.scheme not in allowed or not host:
        raise InvalidRequest(f"cannot fetch {text[:200]}: it is no {' or '.join(allowed)} address")
    if parts.username is not None or parts.password is not None:
        raise InvalidRequest("cannot fetch: an address must not hold a password")
    if len(text) > _MAX_ADDRESS or re.search(r"[\x00-\x20\x7f]", text):
        raise InvalidRequest("cannot fetch: the address is too long or has strange characters")
    return text


def below(base: str, name: str) -> str:
    """The address of a file of a bundle that lies at ``base``."""
    head, mark, query = base.partition("?")
    return head.rstrip("/") + "/" + name + mark + query


def beside(text: str, suffix: str) -> str:
    """The address of the file whose name is longer by ``suffix``."""
    head, mark, query = text.partition("?")
    return head + suffix + mark + query


def redirected(text: str, location: str, *, plain: bool) -> str:
    """Where to ask next. InvalidRequest when it leads away from https:, or nowhere."""
    try:
        following = urljoin(text, location)
    except ValueError as error:
        raise InvalidRequest(f"cannot fetch {location[:200]!r}: {error}") from error
    return address(following, plain=plain)


def same_host(one: str, other: str) -> bool:
    """Whether a client's certificate for one may be shown to the other."""
    first, second = urlsplit(one), urlsplit(other)
    return (first.scheme, first.hostname, first.port) == (
        second.scheme,
        second.hostname,
        second.port,
    )


def check_range(header: str, first: int, total: int) -> int:
    """Of a 206 answer: the number of bytes that follow. Unavailable when it is another part."""
    match = _CONTENT_RANGE.fullmatch(header.strip())
    if match is None:
        raise Unavailable("cannot use the answer: it does not say which part it is")
    begin, end, length = (int(word) for word in match.groups())
    if length != total:
        raise Unavailable(f"cannot use the answer: the file there has {length} bytes, not {total}")
    if begin != first or not begin <= end < length:
        raise Unavailable("cannot use the answer: it is another part than the one asked for")
    return end - begin + 1


def told_length(header: str) -> int:
    """Bytes that Content-Length promises; -1 = it is absent or makes no sense."""
    text = header.strip()
    return int(text) if re.fullmatch(r"[0-9]{1,19}", text) else -1


def retry_after_s(header: str | None, now: datetime) -> float | None:
    """Seconds to wait; None when the header is absent or makes no sense."""
    if header is None:
        return None
    text = header.strip()
    if re.fullmatch(r"\d{1,9}", text):
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return max(0.0, (moment - now).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None


def validator(etag: str | None, modified: str | None) -> str:
    """What If-Range may carry: a strong entity tag, else the date; "" = nothing can."""
    if etag and re.fullmatch(r'"[\x21\x23-\x7e\x80-\xff]{0,256}"', etag.strip()):
        return etag.strip()
    return modified.strip() if modified and not etag else ""
