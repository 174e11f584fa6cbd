"""Where the real default model is; a missing one is a failure, never a skip."""

from __future__ import annotations

import os
from pathlib import Path

NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


def default_model() -> Path:
    """STOKER_TEST_MODEL, else the bootstrap's cache."""
    cache = Path(os.environ.get("STOKER_CACHE") or Path.home() / ".cache" / "stoker")
    path = Path(os.environ.get("STOKER_TEST_MODEL") or cache / "models" / NAME)
    assert path.is_file(), f"no model at {path}: run 'make test', which fetches it"
    return path
