"""DSSE envelopes: signed bytes with their type, before anything in them is understood.

Format: DSSE v1 (secure-systems-lab/dsse, protocol.md), with a certificate list ``x5c``
(as RFC 7515) in the place of a key id. The signature is over type and bytes, so that
nothing is parsed before it is verified.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Final

from stoker_ota.core import strict_json
from stoker_ota.core.fields import SIGNATURE_BYTES
from stoker_ota.errors import BadDocument, OtaError
from stoker_ota.getters import Table

MAX_SIGNATURES: Final = 16
MAX_CERTIFICATES: Final = 2  # a leaf and at most one intermediate
MAX_CERTIFICATE_BYTES: Final = 4096
MAX_TYPE_BYTES: Final = 128


@dataclass(frozen=True, slots=True)
class Signature:
    """``value`` is r and s, 64 bytes; ``chain`` is DER, the leaf first."""

    value: bytes
    chain: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Envelope:
    payload_type: str
    payload: bytes
    signatures: tuple[Signature, ...]

    @property
    def message(self) -> bytes:
        """What the signatures are over."""
        return pae(self.payload_type, self.payload)


def pae(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding, version 1."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def parse(data: bytes, *, max_bytes: int) -> Envelope:
    """Raises TooLarge, BadDocument. The payload stays bytes."""
    value = strict_json.loads(data, max_bytes=max_bytes, what="envelope")
    table = Table(value, _fail)
    kind = table.text("payloadType", max_bytes=MAX_TYPE_BYTES)
    payload = strict_json.unbase64(table.text("payload"), "envelope: payload")
    signatures = tuple(
        _signature(item) for item in table.tables("signatures", max_items=MAX_SIGNATURES)
    )
    table.finish()
    if not signatures:
        raise BadDocument("cannot read envelope: it has no signature")
    return Envelope(kind, payload, signatures)


def encode(envelope: Envelope) -> bytes:
    """The envelope's bytes: same value, same bytes."""
    return strict_json.dumps(
        {
            "payloadType": envelope.payload_type,
            "payload": _base64(envelope.payload),
            "signatures": [
                {"sig": _base64(item.value), "x5c": [_base64(der) for der in item.chain]}
                for item in envelope.signatures
            ],
        }
    )


def _signature(table: Table) -> Signature:
    value = strict_json.unbase64(table.text("sig"), "envelope: sig")
    if len(value) != SIGNATURE_BYTES:
        table.refuse("sig", f"has {len(value)} bytes instead of {SIGNATURE_BYTES}")
    texts = table.texts("x5c", max_items=MAX_CERTIFICATES)
    if not texts:
        table.refuse("x5c", "is empty")
    chain = tuple(strict_json.unbase64(text, "envelope: x5c") for text in texts)
    if any(len(der) > MAX_CERTIFICATE_BYTES for der in chain):
        table.refuse("x5c", f"a certificate has more than {MAX_CERTIFICATE_BYTES} bytes")
    table.finish()
    return Signature(value, chain)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _fail(path: str, reason: str) -> OtaError:
    return BadDocument(f"cannot read envelope: {path}: {reason}", details={"path": path})
