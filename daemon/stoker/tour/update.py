"""The update step: a signed delta that is kept, a changed one that is refused, and a damaged
model whose signature is right, which its probes find out.

It plays the operator with stoker-ota in a folder, and the device with stokerctl. The models
are the embedded one under another name, and the same with holes in its weights.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from stoker.errors import EngineFailed
from stoker.tour.screen import Screen
from stoker_client import Stoker

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


class Update:
    """``folder`` is the tour's; ``trust`` is where stokerd looks for the operator's document."""

    def __init__(self, screen: Screen, stoker: Stoker, folder: Path, model: Path) -> None:
        self._screen, self._stoker, self._model = screen, stoker, model
        self._home = folder / "operator"

    @staticmethod
    def config(folder: Path, model: Path) -> str:
        """Lines of stoker.toml with which stokerd trusts the operator."""
        quoted, trust = (
            json.dumps(str(model)),
            json.dumps(str(folder / "operator/pki/trust/1.json")),
        )
        return f"[models.{NAME}]\npath = {quoted}\n[updates]\ntrust = {trust}\n"

    def show(self) -> None:
        say = self._screen.say
        say("An operator makes keys, a delta from the model in use to a new one, and a bundle.")
        self._home.mkdir()
        os.environ[_PASSPHRASE] = "of the tour alone"
        try:
            bundles = self._author()
        finally:
            del os.environ[_PASSPHRASE]
        say("\nThe device: verified, applied, tried beside the model that serves, and kept:")
        self._install(bundles[0], 0)
        say("\nOne byte of the bundle is changed on its way:")
        self._install(self._changed(bundles[1]), 77)
        say("\nThe same bundle unchanged. Its model has holes, but its signature is right:")
        self._install(bundles[1], 69)
        facts = self._stoker.updates.facts()
        if facts["Current"] != 1:
            raise EngineFailed(f"cannot show a return: set {facts['Current']} is current")
        self._screen.fact("in use", "set 1, as before the last two; it served all the time")
        self._need(self._screen.run(["stokerctl", "update", "history", "--limit", "4"], 20), 0)

    def _author(self) -> list[Path]:
        data = bytearray(self._model.read_bytes())
        _rename(data)
        (self._home / "v1.gguf").write_bytes(data)
        step = len(data) // (2 * _HOLES)
        for hole in range(_HOLES):  # the upper half of the file is weights
            start = len(data) // 2 + hole * step
            end = min(start + _HOLE_BYTES, len(data))
            data[start:end] = os.urandom(end - start)
        (self._home / "v2.gguf").write_bytes(data)
        self._ota("init-pki")
        return [self._bundle(1, self._model), self._bundle(2, self._home / "v1.gguf")]

    def _bundle(self, version: int, old: Path) -> Path:
        recipe = _RECIPE.format(name=NAME, version=version, text=_TEXT)
        (self._home / f"v{version}.toml").write_text(recipe)
        shown = version == 1
        new, delta = f"v{version}.gguf", f"v{version}.delta"
        made, catalog = f"v{version}.json", f"catalog-{version}.json"
        after = ["--after", f"catalog-{version - 1}.json"] if version > 1 else []
        self._ota("delta", "make", str(old), new, "-o", delta, "--no-proof", shown=shown)
        self._ota("manifest", "make", f"v{version}.toml", "-o", made, shown=shown)
        self._ota("catalog", "make", made, *after, "-o", catalog, shown=shown)
        self._ota(
            "bundle", "make", catalog, made, "--blobs", delta, "--trust", "pki/trust/1.json",
            "-o", f"bundle-{version}", shown=shown,
        )  # fmt: skip
        return self._home / f"bundle-{version}"

    def _changed(self, bundle: Path) -> Path:
        bad = self._home / "bundle-changed"
        shutil.copytree(bundle, bad)
        path = bad / "manifests" / f"{NAME}.json"
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        return bad

    def _install(self, bundle: Path, status: int) -> None:
        command = ["stokerctl", "update", "install", str(bundle)]
        self._need(self._screen.run(command, 60, may_fail=True), status)

    def _need(self, status: int, wanted: int) -> None:
        if status != wanted:
            raise EngineFailed(f"cannot show the update: status {status} instead of {wanted}")

    def _ota(self, *words: str, shown: bool = True) -> None:
        """As it is typed, in the operator's folder; its output only when it fails."""
        if shown:
            self._screen.command(["stoker-ota", *words])
        done = subprocess.run(
            [*_program(), *words], cwd=self._home, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=60, check=False,
        )  # fmt: skip
        if done.returncode:
            raise EngineFailed(f"cannot run stoker-ota {words[0]}: {done.stderr.strip()}")


def _rename(data: bytearray) -> None:
    """Another ``general.name`` of the same length: a new file, and the weights stay.

    After the key come its type (4 bytes), a length (8) and the text: GGUF's specification.
    """
    key = b"general.name"
    at = data.find(key, 0, 1 << 20)
    if at < 0:
        raise EngineFailed("cannot make a new model: this one has no name to change")
    text = at + len(key) + 12
    data[text : text + 4] = b"new "


def _program() -> Sequence[str]:
    found = Path(sys.executable).parent / "stoker-ota"
    return [str(found)] if found.is_file() else [sys.executable, "-m", "stoker_ota.cli.main"]
