"""Errors as HTTP tells them: problem+json (RFC 7807) that also carries OpenAI's ``error``.

The one table of the gateway: error code → status, OpenAI's type and code. Statuses are
those of the agent's own table (a test compares them). Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from stoker_client.errors import StokerClientError

MEDIA_TYPE: Final = "application/problem+json"
_URN: Final = "urn:stoker:error:"
_REPEATED: Final = frozenset({408, 409, 429})
"""What the openai package asks again for by itself, beside 5xx."""


@dataclass(frozen=True, slots=True)
class Row:
    status: int
    kind: str  # OpenAI's error.type
    code: str  # OpenAI's error.code


_INVALID: Final = "invalid_request_error"
_SERVER: Final = "server_error"
_LIMIT: Final = "rate_limit_error"
_RIGHTS: Final = "permission_error"

ROWS: Final[Mapping[str, Row]] = {
    "internal": Row(500, _SERVER, "internal_error"),
    "invalid-request": Row(400, _INVALID, "invalid_request"),
    "request-too-large": Row(413, _INVALID, "request_too_large"),
    "not-found": Row(404, _INVALID, "not_found"),
    "not-authorized": Row(403, _RIGHTS, "not_authorized"),
    "config-invalid": Row(500, _SERVER, "config_invalid"),
    "busy": Row(503, _SERVER, "busy"),
    "quota-exceeded": Row(429, _LIMIT, "quota_exceeded"),
    "context-length-exceeded": Row(400, _INVALID, "context_length_exceeded"),
    "model-unavailable": Row(503, _SERVER, "model_unavailable"),
    "model-loading": Row(503, _SERVER, "model_loading"),
    "insufficient-memory": Row(503, _SERVER, "insufficient_memory"),
    "grammar-invalid": Row(400, _INVALID, "grammar_invalid"),
    "cancelled": Row(499, _SERVER, "cancelled"),
    "preempted": Row(503, _SERVER, "preempted"),
    "deadline-exceeded": Row(504, _SERVER, "deadline_exceeded"),
    "slow-consumer": Row(408, _SERVER, "slow_consumer"),
    "throttled": Row(503, _SERVER, "throttled"),
    "storage-failed": Row(507, _SERVER, "storage_failed"),
    "engine-failed": Row(502, _SERVER, "engine_failed"),
    "unavailable": Row(503, _SERVER, "unavailable"),
    # Updates have no door here; their codes have a row as all others.
    "bad-delta": Row(422, _INVALID, "bad_delta"),
    "source-mismatch": Row(409, _INVALID, "source_mismatch"),
    "chunk-hash": Row(422, _INVALID, "chunk_hash"),
    "result-hash": Row(422, _INVALID, "result_hash"),
    "no-space": Row(507, _SERVER, "no_space"),
    "no-memory": Row(503, _SERVER, "no_memory"),
    "file-unreadable": Row(404, _INVALID, "file_unreadable"),
    "bad-document": Row(422, _INVALID, "bad_document"),
    "too-large": Row(413, _INVALID, "too_large"),
    "bad-signature": Row(403, _RIGHTS, "bad_signature"),
    "bad-chain": Row(403, _RIGHTS, "bad_chain"),
    "revoked": Row(403, _RIGHTS, "revoked"),
    "expired": Row(403, _RIGHTS, "expired"),
    "rollback": Row(409, _INVALID, "rollback"),
    "freeze": Row(409, _INVALID, "freeze"),
    "mix-and-match": Row(409, _INVALID, "mix_and_match"),
    "wrong-target": Row(409, _INVALID, "wrong_target"),
    "dependency": Row(409, _INVALID, "dependency"),
    "unhealthy": Row(503, _SERVER, "unhealthy"),
    # The gateway's own, which no other door has.
    "model-not-found": Row(404, _INVALID, "model_not_found"),
    "invalid-api-key": Row(401, "authentication_error", "invalid_api_key"),
    "method-not-allowed": Row(405, _INVALID, "method_not_allowed"),
    "unsupported-media-type": Row(415, _INVALID, "unsupported_media_type"),
    "request-timeout": Row(408, _INVALID, "request_timeout"),
    "not-acceptable-host": Row(421, _RIGHTS, "host_not_allowed"),
    "not-acceptable-origin": Row(403, _RIGHTS, "origin_not_allowed"),
}
OWN: Final = frozenset(
    {
        "model-not-found", "invalid-api-key", "method-not-allowed", "unsupported-media-type",
        "request-timeout", "not-acceptable-host", "not-acceptable-origin",
    }
)  # fmt: skip


class Problem(Exception):
    """An error of the gateway itself. ``param``: the JSON path of what was wrong."""

    def __init__(self, code: str, message: str, *, param: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.param, self.hint = code, message, param, hint


@dataclass(frozen=True, slots=True)
class Told:
    """``body`` goes out as problem+json or msgpack, ``headers`` beside it."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


def tell(error: Problem | StokerClientError, request_id: str = "") -> Told:
    """The whole answer. Codes without a row read as ``internal``."""
    row = ROWS.get(error.code, ROWS["internal"])
    inner = openai_error(error)
    body: dict[str, Any] = {
        "type": _URN + (error.code if error.code in ROWS else "internal"),
        "title": _title(row.status),
        "status": row.status,
        "detail": error.message,
        "error": inner,
    }
    if request_id:
        body["instance"] = f"urn:stoker:request:{request_id}"
    if error.hint:
        body["hint"] = error.hint
    details = getattr(error, "details", None)
    if details:
        body["details"] = dict(details)
    return Told(row.status, body, _headers(error, row))


def openai_error(error: Problem | StokerClientError) -> dict[str, Any]:
    """OpenAI's ``error`` object; also the body of a stream's last event."""
    row = ROWS.get(error.code, ROWS["internal"])
    message = error.message
    # LangChain knows an overflow only by this word in the text.
    if row.code == "context_length_exceeded" and row.code not in message:
        message = f"{row.code}: {message}"
    if error.hint:
        message = f"{message} ({error.hint})"
    return {"message": message, "type": row.kind, "param": _param(error), "code": row.code}


def _headers(error: Problem | StokerClientError, row: Row) -> dict[str, str]:
    found: dict[str, str] = {}
    retryable = isinstance(error, StokerClientError) and error.retryable
    wait_ms = error.details.get("retry_after_ms") if isinstance(error, StokerClientError) else None
    if isinstance(wait_ms, int | float) and retryable:
        found["retry-after"] = str(max(1, math.ceil(min(wait_ms, 3_600_000.0) / 1000)))
    if not retryable and (row.status in _REPEATED or row.status >= 500):
        found["x-should-retry"] = "false"
    if row.status == 401:
        found["www-authenticate"] = "Bearer"
    return found


def _param(error: Problem | StokerClientError) -> str | None:
    if isinstance(error, Problem):
        return error.param or None
    path = error.details.get("path")
    # The agent speaks of its own D-Bus argument; the names below it are the same.
    return path.removeprefix("request.") if isinstance(path, str) else None


def _title(status: int) -> str:
    if status == 499:
        return "Client Closed Request"
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"
