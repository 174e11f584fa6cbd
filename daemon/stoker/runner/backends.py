"""The packaged llama.cpp brings the CPU backend in variants; ggml takes the best that runs here.

A build for one processor (a checkout) has it linked in, and there is nothing to load.
"""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path

from stoker.errors import EngineFailed

_PREFIX = "libggml-cpu-"


def load(folder: Path) -> str:
    """The variant that was chosen; "" = linked in. Raises EngineFailed if none runs here."""
    if not any(folder.glob(f"{_PREFIX}*.so")):
        return ""
    ggml = ctypes.CDLL(str(folder / "libggml.so"))
    ggml.ggml_backend_load_all_from_path.argtypes = [ctypes.c_char_p]
    ggml.ggml_backend_load_all_from_path.restype = None
    ggml.ggml_backend_load_all_from_path(str(folder).encode())
    variant = _mapped()
    if not variant:
        raise EngineFailed(
            "cannot load the engine: no build of it runs on this processor",
            hint="see docs/packaging.md for the processors that the package knows",
        )
    return variant


def _mapped() -> str:
    """ggml tries each and closes the losers; the kernel knows which one stayed."""
    with contextlib.suppress(OSError):
        for row in Path("/proc/self/maps").read_text().splitlines():
            name = row.rpartition("/")[2]
            if name.startswith(_PREFIX):
                return name.removeprefix(_PREFIX).removesuffix(".so")
    return ""
