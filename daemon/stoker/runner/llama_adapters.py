"""Loads LoRA adapters beside their model, also while it answers. One that cannot be loaded
takes nothing else along.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
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


class Shelf:
    """See ``engine.Adapters``. What was loaded stays until the model goes: a job that began
    under an adapter ends under it, and llama.cpp frees adapters with their model only.
    """

    def __init__(self, library: Library, model: Any) -> None:
        self._library, self._model = library, model
        self._wanted: dict[str, str] = {}
        self._loaded: dict[str, Adapter] = {}  # by path

    def take(self, wanted: Sequence[Wanted]) -> None:
        for item in wanted:
            known = self._loaded.get(item.path)
            if known is None or known.pointer is None:
                self._loaded[item.path] = _load(self._library, self._model, item.path)
        self._wanted = {item.name: item.path for item in wanted}

    def reasons(self) -> Mapping[str, str]:
        return {name: self._loaded[path].reason for name, path in self._wanted.items()}

    def keys(self) -> Mapping[str, str]:
        return self._wanted

    def pointer(self, key: str) -> Any:
        """None when it is not loaded."""
        found = self._loaded.get(key)
        return found.pointer if found is not None else None


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
