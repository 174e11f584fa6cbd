"""stoker-ota init-pki, trust, sign, manifest, catalog, probe: documents are made and signed."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from cryptography import x509

from stoker_ota.cli import given_parts, keyring
from stoker_ota.cli.console import Console
from stoker_ota.cli.keyring import Keyring, moment, new_key
from stoker_ota.core import chain, clock, documents, envelope, manifest, probes, recipe
from stoker_ota.core.documents import Catalog, Trust
from stoker_ota.core.recipe import Measured, MeasuredDelta, Recipe
from stoker_ota.core.rules import Entry, names_kept
from stoker_ota.drivers import cutting, folders
from stoker_ota.drivers.files import SourceFile
from stoker_ota.errors import BadChain, BadDocument, InvalidRequest
from stoker_ota.services import authority, delta_apply

MAX_FIGURES_BYTES: Final = 1 << 20


def run(args: Namespace, console: Console) -> None:
    """One command. OtaError."""
    from stoker_ota.cli import bundling, packing

    words = " ".join(part for part in (args.command, getattr(args, "verb", "")) if part)
    commands: dict[str, Callable[[Namespace, Console], None]] = {
        "init-pki": init_pki, "trust show": trust_show, "trust renew": trust_renew,
        "trust rotate": trust_rotate, "trust revoke": trust_revoke, "sign": add_signature,
        "manifest make": manifest_make, "catalog make": catalog_make, "probe make": probe_make,
        "runtime pack": packing.pack, "runtime list": packing.listing,
        "bundle pack": packing.pack_bundle,
        "bundle make": bundling.make, "verify": bundling.verify,
    }  # fmt: skip
    commands[words](args, console)


def init_pki(args: Namespace, console: Console) -> None:
    ring, now = Keyring(args), moment(args)
    if (ring.folder / "keys").exists():
        raise InvalidRequest(f"cannot make keys in {ring.folder}: there are some already")
    holders = authority.found(args.operator, now, authority.Terms(), new_key, args.threshold)
    trust = authority.first_trust(holders, now, args.days, args.threshold)
    documents.parse_trust(documents.trust_payload(trust))  # before there are keys without it
    for holder in holders.values():
        ring.add(holder)
    path = ring.save_trust(trust, ring.signers("trust"))
    _said(console, {"trust": str(path), "keys": sorted(holders)}, f"{path}: version 1")
    console.note("Keep the keys of both anchors and intermediate-2 off line.")
    if args.threshold > 1:
        console.note("intermediate-1 too: whoever has its key can make signers.")


def trust_show(args: Namespace, console: Console) -> None:
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


def trust_renew(args: Namespace, console: Console) -> None:
    ring = Keyring(args)
    _said_trust(console, *_next_trust(ring, args, ring.trust()))


def trust_rotate(args: Namespace, console: Console) -> None:
    ring, now = Keyring(args), moment(args)
    name = authority.signer_names(args.role)[args.signer - 1]
    trust, old = ring.trust(), ring.holder(name)
    middle = ring.holder("intermediate-1")
    operator = middle.certificate.subject.get_attributes_for_oid(x509.NameOID.ORGANIZATION_NAME)
    days = authority.Terms().signer_days
    new = authority.issue(
        name, str(operator[0].value), middle, now, days, new_key(), role=args.role
    )
    if args.revoke:
        trust = replace(trust, revoked=trust.revoked | {chain.spki_hash(old.certificate)})
    # devices that only know the old trust must still accept its successor
    signers = (*ring.signers("trust"), *((new,) if args.role == "trust" else ()))
    # If this fails, the key that is to go is still the role's, and the next try revokes it; a new
    # key that was lost harms nobody.
    path, version = _next_trust(ring, args, trust, signers)
    ring.put_aside(name)
    ring.add(new)
    _said_trust(console, path, version)


def trust_revoke(args: Namespace, console: Console) -> None:
    ring = Keyring(args)
    try:
        certificate = x509.load_pem_x509_certificates(folders.read(args.certificate))[0]
    except ValueError as error:
        raise BadDocument(f"cannot read {args.certificate}: it is no certificate in PEM") from error
    trust = ring.trust()
    revoked = trust.revoked | {chain.spki_hash(certificate)}
    try:
        made = _next_trust(ring, args, replace(trust, revoked=revoked))
    except BadChain as error:
        raise InvalidRequest(
            f"cannot revoke {args.certificate}: {error.message}, and it would sign this trust",
            hint="'stoker-ota trust rotate trust --revoke' signs it with a new key as well",
        ) from error
    _said_trust(console, *made)


def add_signature(args: Namespace, console: Console) -> None:
    data = folders.read(args.envelope)
    found = envelope.parse(data, max_bytes=len(data))
    have = {item.chain[0] for item in found.signatures}
    signers = [one for one in Keyring(args).signers(args.role) if one.chain[0] not in have]
    if not signers:
        raise InvalidRequest(
            f"cannot sign {args.envelope}: every {args.role} key of {args.pki} has signed it",
            hint="--pki is the folder of whoever has still to sign",
        )
    signed = authority.sign(found.payload_type, found.payload, tuple(signers))
    extra = envelope.parse(signed, max_bytes=len(signed)).signatures
    both = replace(found, signatures=(*found.signatures, *extra))
    folders.write_new(args.output, envelope.encode(both))
    _said(console, {"signatures": len(both.signatures)}, f"{len(both.signatures)} signatures")


def manifest_make(args: Namespace, console: Console) -> None:
    wanted = read_recipe(args.recipe, args)
    here = args.recipe.parent
    files = {path for item in wanted.artifacts for path in (item.file, item.base) if path}
    deltas = {path for item in wanted.artifacts for path in item.deltas}
    payload = recipe.payload(
        wanted,
        {path: measure(here / path, wanted.chunk_size) for path in files},
        {path: measure_delta(here / path, wanted.chunk_size) for path in deltas},
    )
    made, ring = manifest.parse_manifest(payload), Keyring(args)
    signers = tuple(one for role in made.roles for one in ring.signers(role))
    data = authority.sign(manifest.MANIFEST_TYPE, payload, signers)
    folders.write_new(args.output, data)
    facts = {"deployment": made.deployment_id, "version": made.version, "bytes": len(data)}
    _said(console, facts, f"{args.output}: {made.deployment_id} version {made.version}")


def catalog_make(args: Namespace, console: Console) -> None:
    before = read_catalog(args.after) if args.after else None
    entries: dict[str, Entry] = {}
    for path in args.manifests:
        data = folders.read(path, manifest.MAX_MANIFEST_BYTES * 2)
        made = read_manifest(data)
        if made.deployment_id in entries:
            raise InvalidRequest(f"cannot list {path}: {made.deployment_id} is listed twice")
        _, digest = folders.measure(path)
        entries[made.deployment_id] = Entry(made.version, digest, len(data))
    if before is not None:
        names_kept(before.manifests, entries)
    now = moment(args)
    catalog = Catalog(
        1 if before is None else before.version + 1, now, clock.later(now, args.days), entries
    )
    signers = Keyring(args).signers("catalog")
    payload = documents.catalog_payload(catalog)
    documents.parse_catalog(payload)  # what a device would refuse is not signed
    folders.write_new(args.output, authority.sign(documents.CATALOG_TYPE, payload, signers))
    facts = {"version": catalog.version, "manifests": sorted(entries)}
    _said(console, facts, f"{args.output}: version {catalog.version}, {len(entries)} manifest(s)")


def probe_make(args: Namespace, console: Console) -> None:
    """TOML for a recipe, to standard output."""
    variants = [probes.parse(folders.read(path, MAX_FIGURES_BYTES)) for path in args.figures]
    bounds = probes.bounds(variants, args.margin)
    if console.as_json:
        console.json([asdict(probe) for probe in bounds])
        return
    for probe in bounds:
        console.line("\n[[health.probes]]")
        console.line(f"text = {_toml_text(probe.text)}")
        console.line(f"min_nats = {probe.min_nats:.4f}")
        console.line(f"max_nats = {probe.max_nats:.4f}")


def _toml_text(text: str) -> str:
    """As TOML's basic string; JSON leaves some of what a terminal obeys as it is."""
    quoted = json.dumps(text, ensure_ascii=False)
    return re.sub("[\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04x}", quoted)


def read_recipe(path: Path, args: Namespace) -> Recipe:
    """With the times that the command line gives where the recipe has none."""
    value: dict[str, Any] = folders.read_toml(path, "recipe")
    now = moment(args)
    value.setdefault("issued_at", clock.write(now))
    value.setdefault("expires", clock.write(clock.later(now, args.days)))
    given = given_parts.parts(args, value)
    if given:
        listed = value.get("artifacts", [])
        value["artifacts"] = [*listed, *given] if isinstance(listed, list) else listed
    return recipe.parse(value)


def read_manifest(data: bytes) -> manifest.Manifest:
    return manifest.parse_manifest(envelope.parse(data, max_bytes=len(data)).payload)


def read_catalog(path: Path) -> Catalog:
    data = folders.read(path, documents.MAX_CATALOG_BYTES * 2)
    return documents.parse_catalog(envelope.parse(data, max_bytes=len(data)).payload)


def measure(path: Path, chunk_size: int) -> Measured:
    return Measured(*folders.measure(path), cutting.chunks_of(path, chunk_size))


def measure_delta(path: Path, chunk_size: int) -> MeasuredDelta:
    size, digest = folders.measure(path)
    with SourceFile(path) as file:
        found = delta_apply.open_delta(file)
    return MeasuredDelta(
        size, digest, found.index_sha256.hex(), found.index.source.sha256.hex(),
        found.index.target.sha256.hex(), cutting.chunks_of(path, chunk_size),
    )  # fmt: skip


def _next_trust(
    ring: Keyring, args: Namespace, trust: Trust, signers: tuple[authority.Holder, ...] = ()
) -> tuple[Path, int]:
    now = moment(args)
    following = replace(
        trust, version=trust.version + 1, issued_at=now, expires=clock.later(now, args.days)
    )
    path = ring.save_trust(following, signers or ring.signers("trust"), ring.trust())
    return path, following.version


def _said_trust(console: Console, path: Path, version: int) -> None:
    _said(console, {"trust": str(path), "version": version}, f"{path}: version {version}")


def _said(console: Console, facts: dict[str, object], line: str) -> None:
    if console.as_json:
        console.json(facts)
    else:
        console.line(line)
