"""Small records with a checksum: what must survive a power cut, or be known to be damaged."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from stoker_ota.core import strict_json
from stoker_ota.errors import BadDocument, OtaError
from stoker_ota.getters import Table


def seal(name: str, body: Mapping[str, object]) -> bytes:
    """``{name: body, "sha256": …}`` in canonical bytes."""
    return strict_json.dumps({name: body, "sha256": _checksum(body)})


def unseal(name: str, data: bytes, max_bytes: int) -> Table:
    """The body's table; the caller finishes it. Raises BadDocument, TooLarge."""

    def fail(path: str, reason: str) -> OtaError:
        return BadDocument(f"cannot read {name}: {path}: {reason}", details={"path": path})

    table = Table(strict_json.loads(data, max_bytes=max_bytes, what=name), fail)
    body = table.raw(name)
    if table.text("sha256") != _checksum(body):
        raise BadDocument(f"cannot read {name}: the checksum does not fit")
    table.finish()
    return Table(body, fail)


def _checksum(body: object) -> str:
    return hashlib.sha256(strict_json.dumps(body)).hexdigest()
