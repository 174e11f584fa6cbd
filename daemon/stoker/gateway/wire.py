"""Bodies in and out: JSON or msgpack by negotiation, bounded in bytes and in time.

A stream is server-sent events, or with ``Accept: application/msgpack`` one msgpack map
after the other. It knows no field of any body.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final, Protocol

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from stoker.gateway.problems import MEDIA_TYPE, Problem, Told

JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"
EVENTS: Final = "text/event-stream"
MAX_DIGITS: Final = 1000
_DEEP: Final = "nested too deeply"
_MSGPACKS: Final = (MSGPACK, "application/x-msgpack", "application/vnd.msgpack")


async def read(request: Request, most_bytes: int, limit_s: float) -> Any:
    """The body's value. Raises Problem, or ClientDisconnect."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON and kind not in _MSGPACKS:
        # Also what keeps web pages out: a form or text needs no permission of ours.
        raise Problem(
            "unsupported-media-type",
            f"cannot read request: content type is {kind or 'not given'}",
            hint=f"send {JSON} or {MSGPACK}",
        )
    try:
        body = await asyncio.wait_for(_whole(request, most_bytes), limit_s)
    except TimeoutError as error:
        raise Problem(
            "request-timeout", f"cannot read request: its body took more than {limit_s:g} s"
        ) from error
    return _from_json(body) if kind == JSON else _from_msgpack(body)


async def _whole(request: Request, most_bytes: int) -> bytes:
    length = request.headers.get("content-length", "")
    size = int(length) if length.isdecimal() and len(length) < 20 else 0
    parts: list[bytes] = []
    if size <= most_bytes:
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > most_bytes:
                break
            parts.append(part)
    if size > most_bytes:
        raise Problem(
            "request-too-large", f"cannot read request: its body has more than {most_bytes} bytes"
        )
    return b"".join(parts)


def _from_json(body: bytes) -> Any:
    try:
        return json.loads(body, parse_constant=_no_constant, parse_int=_bounded)
    except RecursionError as error:
        raise _unreadable("JSON", _DEEP) from error
    except ValueError as error:
        raise _unreadable("JSON", str(error)) from error


def _from_msgpack(body: bytes) -> Any:
    import msgpack

    try:
        value = msgpack.unpackb(body, strict_map_key=True)
        # What JSON cannot say (bytes, times, NaN) means nothing to the agent either.
        return json.loads(json.dumps(value, allow_nan=False))
    except (RecursionError, msgpack.StackError) as error:
        raise _unreadable("msgpack", _DEEP) from error
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise _unreadable("msgpack", str(error) or "its bytes mean nothing") from error


def _unreadable(form: str, reason: str) -> Problem:
    return Problem("invalid-request", f"cannot read request: the body is not {form}: {reason}")


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON number")


def _bounded(text: str) -> int:
    if len(text) > MAX_DIGITS:  # Python reads no more than 4300, and says so in its own terms
        raise ValueError(f"a number has {len(text.lstrip('-'))} digits")
    return int(text)


def wants_msgpack(request: Request) -> bool:
    """The first of the known types in ``Accept`` decides; no word of them means JSON."""
    for word in request.headers.get("accept", "").lower().split(","):
        kind = word.partition(";")[0].strip()
        if kind in _MSGPACKS:
            return True
        if kind in (JSON, EVENTS, "*/*", "application/*"):
            return False
    return False


def answer(
    request: Request, body: Any, status: int = 200, headers: Mapping[str, str] | None = None,
    media_type: str = JSON,
) -> Response:  # fmt: skip
    if wants_msgpack(request):
        return Response(packed(body), status, dict(headers or {}), MSGPACK)
    return Response(as_json(body), status, dict(headers or {}), media_type)


def problem(request: Request, told: Told) -> Response:
    """Closes the connection: of a request that was refused the rest may still be coming."""
    headers = {**told.headers, "connection": "close"}
    return answer(request, told.body, told.status, headers, MEDIA_TYPE)


def as_json(value: Any) -> bytes:
    # A lone surrogate from a broken request must not break the answer that says so.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def packed(value: Any) -> bytes:
    import msgpack

    found: bytes = msgpack.packb(value, unicode_errors="replace")
    return found


class Form(Protocol):
    """How the parts of a stream look."""

    media_type: str
    keepalive: bytes
    end: bytes

    def event(self, value: Any) -> bytes: ...


class ServerSentEvents:
    media_type = EVENTS
    keepalive = b": keepalive\n\n"
    end = b"data: [DONE]\n\n"

    def event(self, value: Any) -> bytes:
        return b"data: " + as_json(value) + b"\n\n"


class MsgpackSequence:
    media_type = MSGPACK
    keepalive = b"\xc0"  # nil
    end = b""

    def event(self, value: Any) -> bytes:
        return packed(value)


def form_of(request: Request) -> Form:
    return MsgpackSequence() if wants_msgpack(request) else ServerSentEvents()


__all__ = [
    "ClientDisconnect", "Form", "answer", "as_json", "form_of", "packed", "problem", "read",
    "wants_msgpack",
]  # fmt: skip
