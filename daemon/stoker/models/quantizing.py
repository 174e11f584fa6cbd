"""llama.cpp's quantiser: one file in, one file out. In the child process.

Types by tensor come as patterns (llama.cpp's regular expressions), importance as rows of floats,
layers to leave out as numbers. The output appears whole or not at all.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stoker.errors import EngineFailed, InvalidRequest
from stoker.runner import gguf
from stoker.runner.library import Library

FILE_TYPES: Final = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "q2_k": 10,
    "q3_k_s": 11, "q3_k_m": 12, "q3_k_l": 13, "q4_k_s": 14, "q4_k_m": 15, "q5_k_s": 16,
    "q5_k_m": 17, "q6_k": 18, "iq4_nl": 25, "iq4_xs": 30, "bf16": 32,
}  # fmt: skip
"""Names that people know → ``llama_ftype``."""
TENSOR_TYPES: Final = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "q2_k": 10,
    "q3_k": 11, "q4_k": 12, "q5_k": 13, "q6_k": 14, "iq4_nl": 20, "iq4_xs": 23, "bf16": 30,
}  # fmt: skip
"""→ ``ggml_type``."""


_AT: Final = re.compile(rb"\[\s*(\d+)/\s*(\d+)\]")


@dataclass(frozen=True, slots=True)
class Recipe:
    """``types``: (pattern of tensor names, type), the first that fits wins."""

    file_type: str = "q4_k_m"
    types: Sequence[tuple[str, str]] = ()
    prune: Sequence[int] = ()
    pure: bool = False
    importance: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)


def quantize(
    library: Library,
    source: str,
    target: Path,
    recipe: Recipe,
    threads: int,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> int:
    """Bytes of the new file. ``progress`` counts tensors, which only llama.cpp's log tells.

    Raises ModelUnavailable, InvalidRequest, EngineFailed.
    """

    def hear(line: bytes) -> None:
        found = _AT.match(line)
        if found is not None:
            progress(int(found[1]), int(found[2]))

    library.hear = hear
    gguf.check(source)
    params, kept = _params(library.c, recipe, threads)
    part = target.with_name(f".{target.name}.part")
    try:
        status = library.c.llama_model_quantize(
            source.encode(), os.fsencode(part), ctypes.byref(params)
        )
        del kept  # llama.cpp has read all of it now
        if status != 0:
            reason = library.last_complaint(f"llama.cpp says {status}")
            raise EngineFailed(f"cannot quantise {source}: {reason}")
        size = gguf.check(str(part))
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return size


def _params(c: Any, recipe: Recipe, threads: int) -> tuple[Any, list[Any]]:
    """The C structure, and what it points to, which must live as long."""
    if recipe.file_type not in FILE_TYPES:
        raise InvalidRequest(
            f"cannot quantise: there is no type {recipe.file_type}",
            hint=f"types: {', '.join(FILE_TYPES)}",
        )
    params = c.llama_model_quantize_default_params()
    params.nthread, params.ftype = threads, FILE_TYPES[recipe.file_type]
    params.allow_requantize, params.pure = True, recipe.pure
    kept: list[Any] = []
    if recipe.types:
        overrides = (c.llama_model_tensor_override * (len(recipe.types) + 1))()
        for row, (pattern, kind) in zip(overrides, recipe.types, strict=False):
            if kind not in TENSOR_TYPES:
                raise InvalidRequest(f"cannot quantise: there is no tensor type {kind}")
            row.pattern, row.type = pattern.encode(), TENSOR_TYPES[kind]
        kept.append(overrides)
        params.tt_overrides = overrides
    if recipe.prune:
        layers = (ctypes.c_int32 * (len(recipe.prune) + 1))(*sorted(recipe.prune), -1)
        kept.append(layers)
        params.prune_layers = layers
    if recipe.importance:
        rows = (c.llama_model_imatrix_data * (len(recipe.importance) + 1))()
        for row, (name, means) in zip(rows, recipe.importance.items(), strict=False):
            data = np.ascontiguousarray(means)
            kept += [data, name.encode()]
            row.name = kept[-1]
            row.data = data.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
            row.size = data.size
        kept.append(rows)
        params.imatrix = rows
    return params, kept
