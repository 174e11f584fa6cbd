"""Which inputs of a weight matter: mean squares of activations over a calibration text.

llama.cpp shows each tensor after it was computed; where that is a product with a weight, its other
operand is an activation whose squares are summed by column. In the child process only.
Layout of ``ggml_tensor``: ggml.h of the pinned llama.cpp; ``check`` refuses another one.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stoker.errors import EngineFailed

_MAX_SRC: Final = 10
_F32: Final = 0


class Tensor(ctypes.Structure):
    """``struct ggml_tensor``."""


Tensor._fields_ = [
    ("type", ctypes.c_int),
    ("buffer", ctypes.c_void_p),
    ("ne", ctypes.c_int64 * 4),
    ("nb", ctypes.c_size_t * 4),
    ("op", ctypes.c_int),
    ("op_params", ctypes.c_int32 * 16),
    ("flags", ctypes.c_int32),
    ("src", ctypes.POINTER(Tensor) * _MAX_SRC),
    ("view_src", ctypes.c_void_p),
    ("view_offs", ctypes.c_size_t),
    ("data", ctypes.c_void_p),
    ("name", ctypes.c_char * 64),
    ("extra", ctypes.c_void_p),
    ("padding", ctypes.c_char * 8),
]


class Importance:
    """``watch`` for ``llama.Model``; ``means`` afterwards: a row of floats for each weight."""

    def __init__(self, weights: frozenset[str]) -> None:
        """``weights``: names of the file's matrices, so that nothing else is taken for one."""
        self._weights = weights
        self._sums: dict[str, NDArray[np.float64]] = {}
        self._rows: dict[str, int] = {}
        self.fault: str = ""

    def watch(self, pointer: Any) -> None:
        """One computed tensor. Never raises: it is called from C."""
        try:
            self._look(ctypes.cast(pointer, ctypes.POINTER(Tensor)).contents)
        except Exception as error:
            self.fault = self.fault or f"{type(error).__name__}: {error}"

    def _look(self, tensor: Any) -> None:
        if not tensor.src[0] or not tensor.src[1]:
            return
        weight, given = tensor.src[0].contents, tensor.src[1].contents
        name = weight.name.decode("utf-8", "replace")
        if name not in self._weights or given.type != _F32 or weight.ne[0] != given.ne[0]:
            return  # not a product with a weight of ours; experts' products have another shape
        width, rows = given.ne[0], given.ne[1]
        if given.nb[1] != 4 * width or given.ne[2] * given.ne[3] != 1 or not given.data:
            return
        at = ctypes.cast(given.data, ctypes.POINTER(ctypes.c_float))
        seen = np.ctypeslib.as_array(at, shape=(rows, width))
        self._sums.setdefault(name, np.zeros(width))
        self._sums[name] += np.square(seen, dtype=np.float64).sum(axis=0)
        self._rows[name] = self._rows.get(name, 0) + rows

    def means(self) -> dict[str, NDArray[np.float32]]:
        """EngineFailed when nothing could be seen: a quantiser fed with nothing would be silent."""
        if self.fault or not self._sums:
            raise EngineFailed(f"cannot watch activations: {self.fault or 'none were seen'}")
        return {
            name: (total / self._rows[name]).astype(np.float32)
            for name, total in sorted(self._sums.items())
        }
