"""What the documents' parsers share: names, hashes, moments, the schema's number.

Loads nothing but the parser: a device reads its journal and its sets without cryptography.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from stoker_ota.core import clock, strict_json
from stoker_ota.errors import BadDocument, OtaError
from stoker_ota.getters import Table

MAX_VERSION: Final = (1 << 53) - 1
SIGNATURE_BYTES: Final = 64  # r and s
SHA256: Final = re.compile(r"[0-9a-f]{64}")
NAME: Final = re.compile(r"[a-z0-9][a-z0-9._+-]{0,127}")


def open_payload(payload: bytes, what: str, max_bytes: int) -> Table:
    """The payload's table with its schema checked; errors name the document and the key."""

    def fail(path: str, reason: str) -> OtaError:
        return BadDocument(f"cannot read {what}: {path}: {reason}", details={"path": path})

    table = Table(strict_json.loads(payload, max_bytes=max_bytes, what=what), fail)
    table.whole("schema", low=1, high=1)
    return table


def plain(text: str, max_bytes: int) -> str:
    """What somebody else said, fit to be kept: at most so many bytes, and all of it UTF-8."""
    data = text.encode("utf-8", "replace")  # half a character of a file's name becomes "?"
    return data.decode() if len(data) <= max_bytes else data[:max_bytes].decode("utf-8", "ignore")


def name(table: Table, key: str) -> str:
    """A short name of lower-case letters, digits and . _ + - that is no path."""
    text = table.text(key)
    if not NAME.fullmatch(text) or ".." in text:
        table.refuse(key, f"{text[:40]!r} is no name")
    return text


def sha256(table: Table, key: str) -> str:
    text = table.text(key)
    if not SHA256.fullmatch(text):
        table.refuse(key, "is no SHA-256 in lower-case hexadecimal")
    return text


def moment(table: Table, key: str) -> datetime:
    try:
        return clock.parse(table.text(key), key)
    except BadDocument as error:
        table.refuse(key, error.message)
