"""stoker-ota init-pki, manifest, catalog, probe: documents are made and signed."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from stoker_ota.cli import given_parts, signing
from stoker_ota.cli.console import Console
from stoker_ota.cli.keyring import Keyring, moment, new_key
from stoker_ota.core import clock, documents, envelope, manifest, probes, recipe
from stoker_ota.core.documents import Catalog
from stoker_ota.core.recipe import Measured, MeasuredDelta, Recipe
from stoker_ota.core.rules import Entry, names_kept
from stoker_ota.drivers import cutting, folders
from stoker_ota.drivers.files import SourceFile
from stoker_ota.errors import InvalidRequest
from stoker_ota.services import authority, delta_apply

MAX_FIGURES_BYTES: Final = 1 << 20


def run(args: Namespace, console: Console) -> None:
    """One command. OtaError."""
    from stoker_ota.cli import bundling, packing, trusting

    words = " ".join(part for part in (args.command, getattr(args, "verb", "")) if part)
    commands: dict[str, Callable[[Namespace, Console], None]] = {
        "init-pki": init_pki, "trust show": trusting.show, "trust renew": trusting.renew,
        "trust rotate": trusting.rotate, "trust revoke": trusting.revoke,
        "sign": signing.add_signature,
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
    signing.tell_missing(console, ring, data, made.roles)
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
    ring = Keyring(args)
    payload = documents.catalog_payload(catalog)
    documents.parse_catalog(payload)  # what a device would refuse is not signed
    data = authority.sign(documents.CATALOG_TYPE, payload, ring.signers("catalog"))
    folders.write_new(args.output, data)
    signing.tell_missing(console, ring, data, ("catalog",))
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


def _said(console: Console, facts: dict[str, object], line: str) -> None:
    if console.as_json:
        console.json(facts)
    else:
        console.line(line)
