"""Loads LoRA adapters beside their model. One that cannot be loaded takes nothing else along."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stoker.errors import ModelUnavailable
from stoker.events.runner import Adapter as Wanted
from stoker.runner import gguf
from stoker.runner.library import Library


@dataclass(frozen=True, slots=True)
class Adapter:
    """``pointer`` belongs to the model, which frees it; None with the ``reason`` why."""

    pointer: Any
    reason: str = ""


def load(library: Library, model: Any, wanted: Sequence[Wanted]) -> dict[str, Adapter]:
    """Adapters by name."""
    return {item.name: _load(library, model, item.path) for item in wanted}


def _load(library: Library, model: Any, path: str) -> Adapter:
    try:
        gguf.check(path)
    except ModelUnavailable as error:
        return Adapter(None, error.message)
    library.complaints.clear()
    pointer = library.c.llama_adapter_lora_init(model, os.fsencode(path))
    if pointer:
        return Adapter(pointer)
    reason = library.last_complaint("llama.cpp refused the file")
    return Adapter(None, f"cannot load adapter {path}: {reason}")
