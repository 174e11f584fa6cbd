"""stoker-ota trust: what the root of everything says, and its next version."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from typing import Final

from cryptography import x509

from stoker_ota.cli import keyring, signing
from stoker_ota.cli.console import Console
from stoker_ota.cli.keyring import Keyring, moment, new_key
from stoker_ota.core import chain, clock
from stoker_ota.core.documents import Trust
from stoker_ota.drivers import folders
from stoker_ota.errors import BadChain, BadDocument, InvalidRequest
from stoker_ota.services import authority
from stoker_ota.services.authority import Holder

ROLE: Final = "trust"


def show(args: Namespace, console: Console) -> None:
    trust = keyring.read_trust(args.document)
    roles = {name: role.threshold for name, role in trust.roles.items()}
    facts: dict[str, object] = {
        "version": trust.version,
        "issued_at": clock.write(trust.issued_at),
        "expires": clock.write(trust.expires),
        "anchors": [chain.spki_hash(anchor) for anchor in trust.anchors],
        "roles": roles,
        "revoked": sorted(trust.revoked),
    }
    if console.as_json:
        console.json(facts)
        return
    console.table(
        [
            ("version", str(trust.version)),
            ("issued", clock.write(trust.issued_at)),
            ("expires", clock.write(trust.expires)),
            *(("anchor", chain.spki_hash(anchor)) for anchor in trust.anchors),
            *((f"role {name}", f"{count} signer(s)") for name, count in roles.items()),
            *(("revoked", item) for item in sorted(trust.revoked)),
        ]
    )


def renew(args: Namespace, console: Console) -> None:
    ring = Keyring(args)
    _next(ring, args, console, ring.settled_trust(), ring.signers(ROLE))


def rotate(args: Namespace, console: Console) -> None:
    """The old key may be lost: what it was is known by its certificate."""
    ring, now = Keyring(args), moment(args)
    name = authority.signer_names(args.role)[args.signer - 1]
    trust, old = ring.settled_trust(), ring.certificate(name)
    middle = ring.holder("intermediate-1")
    operator = middle.certificate.subject.get_attributes_for_oid(x509.NameOID.ORGANIZATION_NAME)
    days = authority.Terms().signer_days
    new = authority.issue(
        name, str(operator[0].value), middle, now, days, new_key(), role=args.role
    )
    if args.revoke:
        trust = replace(trust, revoked=trust.revoked | {chain.spki_hash(old)})
    # devices that only know the old trust must still accept its successor
    signers = (*ring.here(ROLE), new) if args.role == ROLE else ring.signers(ROLE)
    # If this fails, the key that is to go is still the role's, and the next try revokes it; a new
    # key that was lost harms nobody.
    _next(ring, args, console, trust, signers)
    ring.put_aside(name)
    ring.add(new)


def revoke(args: Namespace, console: Console) -> None:
    ring = Keyring(args)
    try:
        certificate = x509.load_pem_x509_certificates(folders.read(args.certificate))[0]
    except ValueError as error:
        raise BadDocument(f"cannot read {args.certificate}: it is no certificate in PEM") from error
    trust, key = ring.settled_trust(), chain.spki_hash(certificate)
    if key in trust.revoked:
        raise InvalidRequest(f"cannot revoke {args.certificate}: its key is revoked already")
    signer = ring.signer_of(ROLE, key)
    if signer and trust.roles[ROLE].threshold > 1:
        # without him there would be too few to sign this version and every later one
        raise _needed(args, f"trust takes {trust.roles[ROLE].threshold} signers", signer)
    try:
        _next(ring, args, console, replace(trust, revoked=trust.revoked | {key}),
              ring.signers(ROLE))  # fmt: skip
    except BadChain as error:
        raise _needed(args, error.message, signer) from error


def _needed(args: Namespace, why: str, signer: int) -> InvalidRequest:
    which = f" --signer {signer}" if signer > 1 else ""
    return InvalidRequest(
        f"cannot revoke {args.certificate}: {why}, and it would sign this trust",
        hint=f"'stoker-ota trust rotate trust{which} --revoke' has a new key sign it as well",
    )


def _next(
    ring: Keyring, args: Namespace, console: Console, trust: Trust, signers: tuple[Holder, ...]
) -> None:
    now = moment(args)
    following = replace(
        trust, version=trust.version + 1, issued_at=now, expires=clock.later(now, args.days)
    )
    path = ring.save_trust(following, signers, ring.trust())
    if console.as_json:
        console.json({"trust": str(path), "version": following.version})
    else:
        console.line(f"{path}: version {following.version}")
    signing.tell_missing(console, ring, folders.read(path), (ROLE,))
