"""Bundles as an operator makes them, with stoker-ota itself, and models to put into them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stoker_ota.core import gguf_layout

_Q4_K: Final = 12
_BLOCK_BYTES: Final = 144


def environment() -> dict[str, str]:
    """Of ``stoker-ota`` as a child: this run's modules, and the passphrase of its keys."""
    return {
        **os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "STOKER_OTA_PASSPHRASE": "correct horse",
    }  # fmt: skip


def ota(*words: str, home: Path) -> dict[str, object]:
    command = [sys.executable, "-m", "stoker_ota.cli.main", *words, "--json"]
    done = subprocess.run(command, cwd=home, env=environment(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()
    return json.loads(done.stdout) if done.stdout else {}


@dataclass(frozen=True)
class Part:
    """One artifact of a set."""

    kind: str
    name: str
    file: Path
    base: Path | None = None


@dataclass
class Operator:
    """One operator's folder: keys, models, and one bundle a deployment's version."""

    home: Path

    @classmethod
    def found(cls, home: Path) -> Operator:
        home.mkdir(parents=True, exist_ok=True)
        ota("init-pki", home=home)
        return cls(home)

    @property
    def trust(self) -> Path:
        return self.home / "pki/trust/1.json"

    def bundle(
        self, version: int, old: Path, new: Path, health: Mapping[str, object] | str = "",
        name: str = "chat", kind: str = "model",
    ) -> Path:  # fmt: skip
        """A bundle that leads from one file to the other; ``health``: lines of its table."""
        ota("delta", "make", str(old), str(new), "-o", f"{version}.delta", "--jobs", "1",
            "--max-ratio", "1.0", home=self.home)  # fmt: skip
        recipe = (
            f'deployment_id = "{name}"\nversion = {version}\n{health}\n'
            f'[[artifacts]]\nkind = "{kind}"\nname = "{name}"\nversion = "{version}"\n'
            f'release_counter = {version}\nfile = "{new}"\ndeltas = ["{version}.delta"]\n'
        )
        (self.home / f"{version}.toml").write_text(recipe)
        made, catalog = f"{version}.json", f"catalog-{version}.json"
        ota("manifest", "make", f"{version}.toml", "-o", made, home=self.home)
        before = self.home / f"catalog-{version - 1}.json"
        after = ("--after", str(before)) if before.exists() else ()
        ota("catalog", "make", made, "-o", catalog, *after, home=self.home)
        folder = self.home / f"bundle-{version}"
        ota(
            "bundle", "make", catalog, made, "--blobs", f"{version}.delta",
            "--trust", str(self.trust), "-o", str(folder), home=self.home,
        )  # fmt: skip
        return folder

    def publish(self, version: int, *artifacts: Part, head: str = "", name: str = "site") -> Path:
        """A bundle of whole artifacts of any kind; ``head``: further lines of the recipe."""
        recipe = f'deployment_id = "{name}"\nversion = {version}\n{head}\n'
        for part in artifacts:
            recipe += (
                f'[[artifacts]]\nkind = "{part.kind}"\nname = "{part.name}"\n'
                f'version = "{version}"\nrelease_counter = {version}\nfile = "{part.file}"\n'
            )
            recipe += f'base = "{part.base}"\n' if part.base else ""
        (self.home / f"{name}-{version}.toml").write_text(recipe)
        made, catalog = f"{name}-{version}.json", f"{name}-catalog-{version}.json"
        ota("manifest", "make", f"{name}-{version}.toml", "-o", made, home=self.home)
        before = self.home / f"{name}-catalog-{version - 1}.json"
        after = ("--after", str(before)) if before.exists() else ()
        ota("catalog", "make", made, "-o", catalog, *after, home=self.home)
        folder = self.home / f"{name}-bundle-{version}"
        ota(
            "bundle", "make", catalog, made, "--blobs", *(str(part.file) for part in artifacts),
            "--trust", str(self.trust), "-o", str(folder), home=self.home,
        )  # fmt: skip
        return folder


def copy(bundle: Path, to: Path) -> Path:
    shutil.copytree(bundle, to)
    return to


def renamed_model(model: Path, to: Path, mark: str) -> Path:
    """The same GGUF file under another name of its own: same weights, other metadata.

    ``general.name`` is a string: 8 bytes of length, then the text (GGUF specification).
    """
    data = bytearray(model.read_bytes())
    key = b"general.name"
    at = data.index(key) + len(key) + 4  # its type, a u32
    length = int.from_bytes(data[at : at + 8], "little")
    text = mark.encode()[:length].ljust(length, b"_")
    data[at + 8 : at + 8 + length] = text
    to.write_bytes(data)
    return to


def other_weights(old: Path, new: Path) -> Path:
    """Other weights that are as good: blocks of every other large tensor change places."""
    data = bytearray(old.read_bytes())
    layout = gguf_layout.parse(bytes(data), len(data))
    large = [tensor for tensor in layout.tensors if tensor.kind == _Q4_K]
    for tensor in large[::2]:
        blocks = data[tensor.offset : tensor.end]
        cut = 7 * _BLOCK_BYTES
        data[tensor.offset : tensor.end] = blocks[cut:] + blocks[:cut]
    new.write_bytes(data)
    return new
