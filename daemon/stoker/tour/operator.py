"""The operator of the tour: keys, deltas and bundles, made with stoker-ota in a folder.

The models are the embedded one under other names, and the same with holes in its weights.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from stoker.errors import EngineFailed
from stoker.tour.screen import Screen

NAME: Final = "smollm2"
_PASSPHRASE: Final = "STOKER_OTA_PASSPHRASE"
_TEXT: Final = "The cat sat on the mat and looked at the dog."
_HOLES: Final = 8
_HOLE_BYTES: Final = 1 << 19
_RECIPE: Final = """\
deployment_id = "{name}"
version = {version}

[[health.probes]]
text = "{text}"
max_nats = 6.0

[[artifacts]]
kind = "model"
name = "{name}"
version = "{version}"
release_counter = {version}
file = "v{version}.gguf"
deltas = ["v{version}.delta"]
"""


class Operator:
    """``home`` is where the commands run; it holds keys, models and bundles."""

    def __init__(self, screen: Screen, folder: Path, model: Path) -> None:
        self._screen, self._model = screen, model
        self.home = folder / "operator"

    @staticmethod
    def trust(folder: Path) -> Path:
        """Where the document that stokerd trusts will be."""
        return folder / "operator/pki/trust/1.json"

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """The passphrase of the keys is known in here."""
        self.home.mkdir(exist_ok=True)
        os.environ[_PASSPHRASE] = "of the tour alone"
        try:
            yield
        finally:
            del os.environ[_PASSPHRASE]

    def found(self) -> None:
        """Keys, and the models of the first two bundles."""
        data = bytearray(self._model.read_bytes())
        _rename(data, b"new ")
        (self.home / "v1.gguf").write_bytes(data)
        step = len(data) // (2 * _HOLES)
        for hole in range(_HOLES):  # the upper half of the file is weights
            start = len(data) // 2 + hole * step
            end = min(start + _HOLE_BYTES, len(data))
            data[start:end] = os.urandom(end - start)
        (self.home / "v2.gguf").write_bytes(data)
        self.ota("init-pki")

    def renamed(self, version: int, mark: bytes) -> None:
        """The model of that version: once more the same weights."""
        data = bytearray(self._model.read_bytes())
        _rename(data, mark)
        (self.home / f"v{version}.gguf").write_bytes(data)

    def bundle(self, version: int, old: Path, *, shown: bool) -> Path:
        recipe = _RECIPE.format(name=NAME, version=version, text=_TEXT)
        (self.home / f"v{version}.toml").write_text(recipe)
        new, delta = f"v{version}.gguf", f"v{version}.delta"
        made, catalog = f"v{version}.json", f"catalog-{version}.json"
        after = ["--after", f"catalog-{version - 1}.json"] if version > 1 else []
        self.ota("delta", "make", str(old), new, "-o", delta, "--no-proof", shown=shown)
        self.ota("manifest", "make", f"v{version}.toml", "-o", made, shown=shown)
        self.ota("catalog", "make", made, *after, "-o", catalog, shown=shown)
        self.ota(
            "bundle", "make", catalog, made, "--blobs", delta, "--trust", "pki/trust/1.json",
            "-o", f"bundle-{version}", shown=shown,
        )  # fmt: skip
        return self.home / f"bundle-{version}"

    def ota(self, *words: str, shown: bool = True, heard: bool = False) -> None:
        """As it is typed, in the operator's folder; its output when it fails or is ``heard``."""
        if shown:
            self._screen.command(["stoker-ota", *words])
        done = subprocess.run(
            [*_program(), *words], cwd=self.home, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=60, check=False,
        )  # fmt: skip
        if done.returncode:
            raise EngineFailed(f"cannot run stoker-ota {words[0]}: {done.stderr.strip()}")
        if heard:
            self._screen.say(done.stdout.rstrip())


def _rename(data: bytearray, mark: bytes) -> None:
    """Another ``general.name`` of the same length: a new file, and the weights stay.

    After the key come its type (4 bytes), a length (8) and the text: GGUF's specification.
    """
    key = b"general.name"
    at = data.find(key, 0, 1 << 20)
    if at < 0:
        raise EngineFailed("cannot make a new model: this one has no name to change")
    text = at + len(key) + 12
    data[text : text + 4] = mark


def _program() -> Sequence[str]:
    found = Path(sys.executable).parent / "stoker-ota"
    return [str(found)] if found.is_file() else [sys.executable, "-m", "stoker_ota.cli.main"]
