"""Artifacts named on the command line of ``manifest make``, as a recipe would name them."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from stoker_ota.core.fields import NAME
from stoker_ota.drivers import archives
from stoker_ota.errors import InvalidRequest

RUNTIME_NAME: Final = "engine"
POLICY_NAME: Final = "policy"


def fill(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", metavar="NAME=FILE", type=_named, help="the set's model")
    add("--adapter", metavar="NAME=FILE", type=_named, action="append", default=[],
        help="a LoRA adapter (may be repeated)")  # fmt: skip
    add("--base", metavar="FILE", type=Path,
        help="the model that the adapters were made for (default: that of --model)")  # fmt: skip
    add("--runtime", metavar="DIR", type=Path,
        help="llama.cpp's libraries: a folder, or what 'runtime pack' made of it")  # fmt: skip
    add("--policy", metavar="FILE", type=Path, help="settings: a part of a stoker.toml")


def parts(args: Namespace, recipe: Mapping[str, object]) -> list[dict[str, object]]:
    """Their version and release counter are the manifest's version."""
    version = recipe.get("version")
    common = {"version": str(version), "release_counter": version}
    found: list[dict[str, object]] = []
    if args.model:
        name, file = args.model
        found.append({"kind": "model", "name": name, "file": _path(file), **common})
    base = args.base or (args.model[1] if args.model else None)
    for name, file in args.adapter:
        if base is None:
            raise InvalidRequest("cannot take an adapter: --base or --model must name its model")
        found.append({"kind": "adapter", "name": name, "file": _path(file),
                      "base": _path(base), **common})  # fmt: skip
    if args.runtime is not None:
        file = _archive(args.runtime, args.output)
        found.append({"kind": "runtime", "name": RUNTIME_NAME, "file": _path(file), **common})
    if args.policy is not None:
        found.append({"kind": "policy", "name": POLICY_NAME, "file": _path(args.policy), **common})
    return found


def _archive(given: Path, output: Path) -> Path:
    """A folder is packed beside the manifest, where ``bundle make`` will want it."""
    if not given.is_dir():
        archives.listed(given)  # what a device would refuse is not published
        return given
    target = output.with_suffix(".runtime.tar")
    archives.pack(given, target, lambda _phase, _done, _total: None)
    return target


def _path(file: Path) -> str:
    return str(file.absolute())


def _named(word: str) -> tuple[str, Path]:
    name, _, file = word.partition("=")
    if not NAME.fullmatch(name) or not file:
        raise ArgumentTypeError(f"{word} is not NAME=FILE with a lower-case name")
    return name, Path(file)
