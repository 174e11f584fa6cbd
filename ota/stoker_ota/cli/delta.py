"""stoker-ota delta make, inspect, apply, verify: files are opened here, services do the work."""

from __future__ import annotations

import hashlib
import time
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Final

from stoker_ota.cli.console import Bar, Console, size
from stoker_ota.core.choice import CODECS, Choosing
from stoker_ota.drivers import limits
from stoker_ota.drivers.files import PartFile, SourceFile
from stoker_ota.drivers.pool import InlinePool, ProcessPool
from stoker_ota.errors import InvalidRequest, ResultHash
from stoker_ota.ports.pool import WindowPool
from stoker_ota.services import delta_apply, delta_make
from stoker_ota.services.delta_apply import Delta
from stoker_ota.services.delta_make import Making
from stoker_ota.services.whole_file import content
from stoker_ota.services.window_export import export
from stoker_ota.units import MIB
from stoker_ota.values.delta import Index, Window
from stoker_ota.values.report import Made

_FEW_WINDOWS: Final = 2
"""So few are made sooner here than processes start."""


def run(args: Namespace, console: Console) -> None:
    """One verb. OtaError."""
    if args.verb != "make" and getattr(args, "memory_limit", None):
        limits.limit_memory(args.memory_limit * MIB)
    match args.verb:
        case "make":
            _make(args, console)
        case "inspect":
            _inspect(args, console)
        case "apply":
            _apply(args, console)
        case "verify":
            _verify(args, console)


def _make(args: Namespace, console: Console) -> None:
    how = Making(
        window_bytes=args.window,
        choosing=Choosing(CODECS[args.codec], args.level, by_blocks=not args.bspatch),
        plain=args.plain,
        max_ratio=args.max_ratio,
    )
    _refuse_same(args.output, args.old, args.new)
    began_s = time.monotonic()
    with (
        SourceFile(args.old) as old,
        SourceFile(args.new) as new,
        PartFile(args.output) as out,
        console.bar() as bar,
    ):
        pool: WindowPool = InlinePool(old, new)
        if args.jobs > 1 and new.size > _FEW_WINDOWS * args.window:
            pool = ProcessPool(args.old, args.new, args.jobs)
        made = delta_make.make(old, new, out, pool, how, bar)
        seconds = time.monotonic() - began_s
        enough = limits.enough_bytes(args.window, sum(made.windows.values()))
        limit = args.memory_limit * MIB if args.memory_limit else enough
        proof = None if args.no_proof else limits.prove(out.path, args.old, limit)
        out.publish()
    if console.as_json:
        facts = asdict(made) | {"ratio": round(made.ratio, 6), "make_seconds": round(seconds, 3)}
        console.json(facts | {"proof": asdict(proof) if proof else None})
        return
    console.table(
        [
            ("delta", f"{size(made.delta_bytes)}, {made.ratio:.2%} of {size(made.target_bytes)}"),
            ("windows", _kinds(made)),
            ("index", made.index_sha256),
            ("made in", f"{seconds:.1f} s"),
            (
                "proof",
                f"applied in {proof.seconds:.1f} s with {size(proof.peak_memory_bytes)} of memory"
                if proof
                else "none: --no-proof",
            ),
        ]
    )


def _kinds(made: Made) -> str:
    kinds = [f"{n} {name} ({size(made.payload[name])})" for name, n in made.windows.items()]
    return ", ".join(kinds) or "none"


def _inspect(args: Namespace, console: Console) -> None:
    with SourceFile(args.delta) as file:
        delta = delta_apply.open_delta(file)
        if args.export is not None:
            _export(delta, args, console)
            return
        facts = _facts(delta)
        if args.windows:
            facts["list"] = [_window(window) for window in delta.index.windows]
        if console.as_json:
            console.json(facts)
            return
        index = delta.index
        console.table(
            [
                ("from", f"{size(index.source.size)}  {index.source.sha256.hex()}"),
                ("to", f"{size(index.target.size)}  {index.target.sha256.hex()}"),
                ("delta", f"{size(file.size)}, {_ratio(delta):.2%} of the target"),
                ("index", f"{size(delta.index_bytes)}  {delta.index_sha256.hex()}"),
                ("windows", ", ".join(f"{n} {kind}" for kind, n in _counts(index).items())),
            ]
        )
        if args.windows:
            for number, row in enumerate(map(_window, index.windows)):
                console.line(
                    f"{number:6} {row['kind']:12} to {row['dst_off']:12} +{row['dst_len']:<8} "
                    f"from {row['src_off']:12} +{row['src_len']:<8} payload {row['payload_len']}"
                )


def _export(delta: Delta, args: Namespace, console: Console) -> None:
    if args.source is None:
        raise InvalidRequest("cannot export a window: --source is missing")
    with SourceFile(args.source) as source:
        found = export(delta, source, args.export)
    paths = []
    for name, data in (("source", found.source), ("patch", found.patch)):
        path = args.directory / f"{args.export}.{name}"
        with PartFile(path) as part:
            part.write_at(0, data)
            part.publish()
        paths.append(str(path))
    digest = found.target_sha256.hex()
    if console.as_json:
        console.json({"source": paths[0], "patch": paths[1], "target_sha256": digest})
        return
    target = args.directory / f"{args.export}.target"
    console.line(f"bspatch {paths[0]} {target} {paths[1]}")
    console.line(f"gives {digest}")


def _apply(args: Namespace, console: Console) -> None:
    _refuse_same(args.output, args.old, args.delta)
    with SourceFile(args.delta) as file, SourceFile(args.old) as old, console.bar() as bar:
        delta = delta_apply.open_delta(file)
        target = delta.index.target
        delta_apply.check_source(delta.index, old, bar)
        with PartFile(args.output, size=target.size) as part:
            first = delta_apply.intact(delta.index, part)
            began_s, began_cpu_s = time.monotonic(), time.process_time()
            delta_apply.write(delta, old, part, first=first, progress=bar)
            seconds, cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
            part.forget_cache()
            if content(part, "check", bar) != target:
                raise ResultHash(f"cannot make {args.output}: what the disk gives back is wrong")
            part.publish()
    facts = {
        "target_bytes": target.size,
        "target_sha256": target.sha256.hex(),
        "resumed_at_window": first,
        "apply_seconds": round(seconds, 3),  # without reading source and result once more
        "apply_cpu_seconds": round(cpu_s, 3),
        "peak_memory_bytes": limits.peak_memory_bytes(),
    }
    if console.as_json:
        console.json(facts)
        return
    resumed = f", went on at window {first}" if first else ""
    console.line(f"{args.output}: {size(target.size)}, verified{resumed}")


def _verify(args: Namespace, console: Console) -> None:
    with SourceFile(args.delta) as file, console.bar() as bar:
        delta = delta_apply.open_delta(file)
        delta_apply.check_payloads(delta, bar)
        if args.old:
            with SourceFile(args.old) as old:
                _verify_result(delta, old, bar)
    facts = _facts(delta) | {
        "applied": bool(args.old),
        "peak_memory_bytes": limits.peak_memory_bytes(),
    }
    if console.as_json:
        console.json(facts)
        return
    what = "gives the target" if args.old else "is whole (give OLD to try it)"
    console.line(f"{args.delta}: {what}; index {delta.index_sha256.hex()}")


def _verify_result(delta: Delta, old: SourceFile, bar: Bar) -> None:
    delta_apply.check_source(delta.index, old, bar)
    hasher = hashlib.sha256()
    for applied in delta_apply.windows(delta, old):
        hasher.update(applied.data)
        bar("apply", applied.dst_off + len(applied.data), delta.index.target.size)
    if hasher.digest() != delta.index.target.sha256:
        raise ResultHash("cannot verify the delta: its windows are right, the whole is not")


def _facts(delta: Delta) -> dict[str, object]:
    index = delta.index
    return {
        "source": {"size": index.source.size, "sha256": index.source.sha256.hex()},
        "target": {"size": index.target.size, "sha256": index.target.sha256.hex()},
        "delta_bytes": delta.file.size,
        "ratio": round(_ratio(delta), 6),
        "index_bytes": delta.index_bytes,
        "index_sha256": delta.index_sha256.hex(),
        "window_bytes": index.window_bytes,
        "windows": _counts(index),
    }


def _ratio(delta: Delta) -> float:
    return delta.file.size / delta.index.target.size if delta.index.target.size else 0.0


def _counts(index: Index) -> dict[str, int]:
    counts: dict[str, int] = {}
    for window in index.windows:
        name = delta_make.kind_name(window)
        counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))


def _window(window: Window) -> dict[str, object]:
    return {
        "kind": delta_make.kind_name(window),
        "dst_off": window.dst_off,
        "dst_len": window.dst_len,
        "src_off": window.src_off,
        "src_len": window.src_len,
        "payload_len": window.payload_len,
        "dst_sha256": window.dst_sha256.hex(),
    }


def _refuse_same(output: Path, *inputs: Path) -> None:
    """Never write over a file that is being read: somebody may have it mapped."""
    for path in inputs:
        if output.exists() and path.exists() and output.samefile(path):
            raise InvalidRequest(f"cannot write {output}: it is one of the inputs")
