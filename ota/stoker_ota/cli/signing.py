"""stoker-ota sign, and how many signers a document still lacks."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Final

from cryptography import x509

from stoker_ota.cli.console import Console
from stoker_ota.cli.keyring import Keyring
from stoker_ota.core import documents, envelope, fleet_documents, gate, manifest
from stoker_ota.core.envelope import Envelope
from stoker_ota.drivers import folders
from stoker_ota.errors import BadChain, BadDocument, BadSignature, InvalidRequest
from stoker_ota.services import authority

_ROLES: Final = {
    documents.TRUST_TYPE: ("trust",),
    documents.CATALOG_TYPE: ("catalog",),
    manifest.MANIFEST_TYPE: manifest.SIGNERS,
    fleet_documents.COMMAND_TYPE: ("fleet",),
    fleet_documents.DESIRED_TYPE: ("fleet",),
}
"""Whose signatures a document of each type may have."""


def add_signature(args: Namespace, console: Console) -> None:
    ring, found = Keyring(args), _read(args.envelope)
    roles = _ROLES.get(found.payload_type, ())
    if args.role not in roles:
        raise InvalidRequest(
            f"cannot sign {args.envelope} as {args.role}: it is of type {found.payload_type}",
            hint=f"its signers are of the role {' or '.join(roles)}" if roles else "",
        )
    have = {item.chain[0] for item in found.signatures}
    signers = tuple(one for one in ring.signers(args.role) if one.chain[0] not in have)
    if not signers:
        raise InvalidRequest(
            f"cannot sign {args.envelope}: every {args.role} key of {args.pki} has signed it",
            hint="--pki is the folder of whoever has still to sign",
        )
    signed = authority.sign(found.payload_type, found.payload, signers)
    extra = envelope.parse(signed, max_bytes=len(signed)).signatures
    data = envelope.encode(replace(found, signatures=(*found.signatures, *extra)))
    folders.write_new(args.output, data)
    names = [_name(item.chain[0]) for item in (*found.signatures, *extra)]
    if console.as_json:
        console.json({"signatures": len(names), "signers": names})
    else:
        console.line(f"{args.output}: signed by {', '.join(names)}")
    tell_missing(console, ring, data, (args.role,))


def tell_missing(console: Console, ring: Keyring, data: bytes, roles: Collection[str]) -> None:
    """Who has still to sign it, as far as this folder knows how many it takes."""
    if not ring.has_trust:
        return
    kind = envelope.parse(data, max_bytes=len(data)).payload_type
    for role in roles:
        try:
            gate.open_signed(data, kind, role, ring.trust(), max_bytes=len(data))
        except BadSignature as error:
            have, need = (error.details.get(key) for key in ("have", "need"))
            console.note(
                f"{have} of {need} signers: others add theirs with 'stoker-ota sign --role {role}'"
            )
        except BadChain:  # another operator's document: a device's affair
            return


def _read(path: Path) -> Envelope:
    data = folders.read(path)
    try:
        return envelope.parse(data, max_bytes=len(data))
    except BadDocument as error:
        raise BadDocument(
            f"cannot sign {path}: it is no signed document: {error.message}"
        ) from error


def _name(der: bytes) -> str:
    subject = x509.load_der_x509_certificate(der).subject
    names = subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(names[0].value) if names else "somebody"
