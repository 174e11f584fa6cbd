"""stoker-ota runtime pack and list, bundle pack."""

from __future__ import annotations

from argparse import Namespace

from stoker_ota.cli.console import Console, size
from stoker_ota.core.archive import Entry
from stoker_ota.drivers import archives


def pack(args: Namespace, console: Console) -> None:
    with console.bar() as bar:
        found = archives.pack(args.folder, args.output, bar)
    _say(found, str(args.output), console)


def pack_bundle(args: Namespace, console: Console) -> None:
    with console.bar() as bar:
        found = archives.pack_bundle(args.bundle, args.output, bar)
    facts = {"bundle": str(args.output), "files": len(found), "bytes": args.output.stat().st_size}
    if console.as_json:
        console.json(facts)
    else:
        console.line(f"{args.output}: {len(found)} files, {size(args.output.stat().st_size)}")


def listing(args: Namespace, console: Console) -> None:
    _say(archives.listed(args.archive), str(args.archive), console)


def _say(found: tuple[Entry, ...], name: str, console: Console) -> None:
    if console.as_json:
        files = {entry.name: entry.size for entry in found}
        console.json({"archive": name, "files": files})
        return
    console.table([(entry.name, size(entry.size)) for entry in found])
