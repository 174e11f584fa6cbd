"""Loads the CPU backend of llama.cpp. The package brings variants, of which ggml takes the best
that runs here; a checkout has one, built for its processor. Linked in, there is nothing to load.
"""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path

from stoker.errors import EngineFailed

_PREFIX = "libggml-cpu-"


def load(folder: Path) -> str:
    """The variant that was chosen; "" = there is one only. EngineFailed if none runs here."""
    if not (folder / "libggml.so").exists():
        return ""  # somebody else's build of the bindings
    ggml = ctypes.CDLL(str(folder / "libggml.so"))
    ggml.ggml_backend_dev_count.argtypes = []
    ggml.ggml_backend_dev_count.restype = ctypes.c_size_t
    if ggml.ggml_backend_dev_count() == 0:
        ggml.ggml_backend_load_all_from_path.argtypes = [ctypes.c_char_p]
        ggml.ggml_backend_load_all_from_path.restype = None
        ggml.ggml_backend_load_all_from_path(str(folder).encode())
    if ggml.ggml_backend_dev_count() == 0:
        raise EngineFailed(
            "cannot load the engine: no build of it runs on this processor",
            hint="see docs/packaging.md for the processors that the package knows",
        )
    return _mapped()


def _mapped() -> str:
    """ggml tries each and closes the losers; the kernel knows which one stayed."""
    with contextlib.suppress(OSError):
        for row in Path("/proc/self/maps").read_text().splitlines():
            name = row.rpartition("/")[2]
            if name.startswith(_PREFIX):
                return name.removeprefix(_PREFIX).removesuffix(".so")
    return ""
