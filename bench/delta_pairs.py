"""The pairs of files that the delta benchmark measures: what changes in the field, and how much.

Weights come from ``bench.delta_weights``, quantisation from llama.cpp itself. Files are made when
they are wanted and kept in one folder for the run.
"""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from bench.delta_peers import ROOT, peers_python
from bench.peers import cache_dir, library_dir
from stoker_ota.core import gguf_layout
from stoker_ota.drivers import archives

FTYPES: Final = {"q4_0": 2, "q8_0": 7, "q4_k_m": 15}
"""llama_ftype numbers."""
SIGMAS: Final = (0.001, 0.01, 0.02, 0.1)
_TEMPLATE: Final = b"tokenizer.chat_template"


@dataclass(frozen=True, slots=True)
class FilePair:
    key: str
    old: Path
    new: Path


class Files:
    """Makes what a pair needs in ``folder``. ``layers`` is the size of the random model."""

    def __init__(self, folder: Path, model: Path, layers: int) -> None:
        self.folder, self._model, self._layers = folder, model, layers

    def weights(self, kind: str, sigma: float = 0.0, only: str = "") -> Path:
        """An F32 model: "random" or "real"."""
        path = self.folder / f"{kind}-{sigma}-{only}.f32"
        if path.is_file():
            return path
        command = [str(peers_python()), "-m", "bench.delta_weights", str(path)]
        command += ["--sigma", str(sigma), "--only", only, "--layers", str(self._layers)]
        if kind == "real":
            command += ["--model", str(self._model), "--libs", str(library_dir())]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "ota")])}
        subprocess.run(command, check=True, cwd=ROOT, env=environment)
        return path

    def model(self, kind: str, ftype: str, sigma: float = 0.0, only: str = "") -> Path:
        path = self.folder / f"{kind}-{sigma}-{only}.{ftype}"
        if not path.is_file():
            weights = self.weights(kind, sigma, only)
            quantise(weights, path, ftype)
            if sigma:
                weights.unlink()
        return path

    def pairs(self, only: tuple[str, ...] = ()) -> Iterator[FilePair]:
        """Those whose key begins with one of ``only``; none made in vain."""
        for key, build in self._builders().items():
            if not only or key.startswith(only):
                made = build()
                if made:
                    yield FilePair(key, *made)

    def _builders(self) -> dict[str, Callable[[], tuple[Path, Path] | None]]:
        out: dict[str, Callable[[], tuple[Path, Path] | None]] = {}
        for ftype in ("q4_k_m", "q8_0"):
            for sigma in SIGMAS:
                out[f"random.{ftype}.{sigma * 100:g}pct"] = partial(
                    self._changed, "random", ftype, sigma
                )
        for ftype in ("q4_0", "q8_0"):
            for sigma in SIGMAS:
                out[f"smollm2.{ftype}.{sigma * 100:g}pct"] = partial(
                    self._changed, "real", ftype, sigma
                )
        out["smollm2.q4_0.lora"] = partial(self._changed, "real", "q4_0", 0.01, "attn")
        out["smollm2.q4_0.template"] = self._template
        out["smollm2.q4_0.requantised"] = self._requantised
        out["runtime"] = self._runtime
        return out

    def _changed(self, kind: str, ftype: str, sigma: float, only: str = "") -> tuple[Path, Path]:
        return self.model(kind, ftype), self.model(kind, ftype, sigma, only)

    def _template(self) -> tuple[Path, Path]:
        """Another chat template: the header grows and every tensor moves."""
        base, path = self.model("real", "q4_0"), self.folder / "template.gguf"
        data = base.read_bytes()
        layout = gguf_layout.parse(data[: 16 << 20], len(data))
        at = data.index(_TEMPLATE) + len(_TEMPLATE) + 4
        length: int = struct.unpack_from("<Q", data, at)[0]
        text = data[at + 8 : at + 8 + length] + b"{# a fix #}" * 20
        head = data[:at] + struct.pack("<Q", len(text)) + text
        head += data[at + 8 + length : layout.data_off]
        path.write_bytes(head + bytes(-len(head) % 32) + data[layout.data_off :])
        return base, path

    def _requantised(self) -> tuple[Path, Path]:
        """The same weights by way of Q8_0, as somebody without the originals does it."""
        path = self.folder / "requantised.q4_0"
        quantise(self.model("real", "q8_0"), path, "q4_0")
        return self.model("real", "q4_0"), path

    def _runtime(self) -> tuple[Path, Path] | None:
        """llama.cpp's libraries as two builds gave them, if "make deb" left the second here."""
        for tree in sorted(cache_dir().glob("llama-field/*-amd64/llama_cpp/lib")):
            old = self._tree(tree, "runtime-old.tar")
            return old, self._tree(library_dir(), "runtime-new.tar")
        return None

    def _tree(self, tree: Path, name: str) -> Path:
        """As "stoker-ota runtime pack" makes it."""
        path = self.folder / name
        archives.pack(tree, path, lambda _phase, _done, _total: None)
        return path


@cache
def _library() -> Any:
    from stoker.runner.library import Library  # only ctypes, without numpy

    return Library().c


def quantise(source: Path, target: Path, ftype: str) -> None:
    """llama.cpp's own quantisation, on all cores."""
    c = _library()
    how = c.llama_model_quantize_default_params()
    how.ftype, how.allow_requantize = FTYPES[ftype], True
    how.nthread = os.cpu_count() or 1
    if c.llama_model_quantize(bytes(source), bytes(target), ctypes.byref(how)) != 0:
        raise SystemExit(f"cannot quantise {source}")
