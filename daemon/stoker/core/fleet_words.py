"""What a device says to its fleet, as JSON: presence, state, telemetry, results, uploads.

Values in, bytes out; the reader's side (stoker-ota) has the same keys. Numbers say their
unit in their names; moments are UTC.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from stoker.events.fleet import Record

CHUNK_BYTES: Final = 61_440
MAX_UPLOAD_BYTES: Final = 4 << 20
MAX_DATA_BYTES: Final = 64 << 10
WRITTEN: Final = (("result",), ("state",), ("status",), ("telemetry",), ("up", "test", "0"))
"""Below the device's topic; what a guest reads is not among them: nothing would mean something."""


def moment(epoch_s: float) -> str:
    return datetime.fromtimestamp(max(0.0, epoch_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def status(*, online: bool, session: int, at_s: float, why: str = "", clock: str = "") -> bytes:
    """Presence: the birth, the will and a last word. ``session`` tells a late will from news."""
    body: dict[str, object] = {"online": online, "session": session, "time": moment(at_s)}
    if why:
        body["why"] = why
    if clock:
        body["clock"] = clock
    return dump(body)


def result(record: Record, at_s: float) -> bytes:
    """One step of a command. ``number`` rises, so that nobody needs a clock to order them."""
    body: dict[str, object] = {
        "id": record.id, "command": record.command, "state": record.state,
        "number": record.number, "time": moment(at_s),
    }  # fmt: skip
    if record.code:
        body["code"] = record.code
    if record.text:
        body["detail"] = record.text[:1000]
    if record.data:
        data = dict(record.data)
        fits = len(dump(data)) <= MAX_DATA_BYTES
        body["data"] = data if fits else {"too_large": True}
    return dump(body)


def upload(transfer: str, name: str, data: bytes, command: str) -> list[tuple[int, bytes]]:
    """(number, payload) of each message: 0 says what comes, the chunks follow from 1."""
    chunks = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)] or [b""]
    head = dump(
        {
            "transfer": transfer, "name": name, "command": command, "size": len(data),
            "sha256": hashlib.sha256(data).hexdigest(), "chunks": len(chunks),
        }
    )  # fmt: skip
    return [(0, head), *enumerate(chunks, 1)]


def transfer_id(command: str) -> str:
    """Of a command's upload: the same command sends under the same name, whatever happens."""
    digest = hashlib.sha256(command.encode()).digest()[:9]
    return base64.urlsafe_b64encode(digest).decode()


def dump(value: Mapping[str, object] | Sequence[object]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
