"""Imports the llama.cpp binding without its package code, and checks it before use.

``llama_cpp/__init__`` pulls in numpy and the high-level classes (tens of megabytes);
only the ctypes module is wanted. The log callback keeps warnings and never decodes
strictly: model files carry odd bytes.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util
import logging
import os
import sys
import types
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from stoker.errors import EngineFailed
from stoker.runner import backends

DISTRIBUTION: Final = "llama-cpp-python"
SYMBOLS: Final = (
    "llama_adapter_lora_init", "llama_backend_init", "llama_batch_free", "llama_batch_init",
    "llama_context_default_params", "llama_decode", "llama_free", "llama_get_embeddings_ith",
    "llama_get_logits_ith", "llama_get_memory", "llama_init_from_model", "llama_log_set",
    "llama_memory_can_shift", "llama_memory_clear", "llama_memory_seq_add",
    "llama_memory_seq_cp", "llama_memory_seq_pos_max", "llama_memory_seq_pos_min",
    "llama_memory_seq_rm", "llama_model_chat_template", "llama_model_default_params",
    "llama_model_desc", "llama_model_free", "llama_model_get_vocab", "llama_model_has_decoder",
    "llama_model_has_encoder", "llama_model_is_diffusion", "llama_model_is_hybrid",
    "llama_model_is_recurrent", "llama_model_load_from_file", "llama_model_meta_val_str",
    "llama_model_n_ctx_train", "llama_model_n_embd", "llama_model_n_params", "llama_model_size",
    "llama_n_batch", "llama_n_ctx", "llama_print_system_info", "llama_sampler_accept",
    "llama_sampler_apply", "llama_sampler_chain_add", "llama_sampler_chain_default_params",
    "llama_sampler_chain_init", "llama_sampler_free", "llama_sampler_init_dist",
    "llama_sampler_init_greedy", "llama_sampler_init_min_p", "llama_sampler_init_penalties",
    "llama_sampler_init_temp", "llama_sampler_init_top_k", "llama_sampler_init_top_p",
    "llama_sampler_sample", "llama_set_abort_callback", "llama_set_adapters_lora",
    "llama_set_embeddings", "llama_set_n_threads", "llama_state_get_size",
    "llama_state_seq_get_data", "llama_state_seq_get_size", "llama_state_seq_set_data",
    "llama_supports_gpu_offload", "llama_token_to_piece", "llama_tokenize", "llama_vocab_bos",
    "llama_vocab_eos", "llama_vocab_get_add_bos", "llama_vocab_is_eog", "llama_vocab_n_tokens",
)  # fmt: skip
CONSTANTS: Final = (
    "GGML_TYPE_F16", "GGML_TYPE_Q4_0", "GGML_TYPE_Q8_0", "LLAMA_FLASH_ATTN_TYPE_AUTO",
    "LLAMA_FLASH_ATTN_TYPE_DISABLED", "LLAMA_FLASH_ATTN_TYPE_ENABLED", "LLAMA_LOAD_MODE_MLOCK",
    "LLAMA_LOAD_MODE_MMAP", "LLAMA_LOAD_MODE_MMAP_MLOCK", "LLAMA_LOAD_MODE_NONE",
)  # fmt: skip
_WARNING: Final = 3  # ggml_log_level: 1 debug, 2 info, 3 warning, 4 error, 5 continuation
_KEPT_LINES: Final = 32
_log = logging.getLogger("stoker.runner.llama")


class Library:
    """The checked binding (``c``) and what it last complained about."""

    def __init__(self, libraries: Path | None = None) -> None:
        """``libraries``: a folder with libllama and ggml instead of the binding's own."""
        # else ggml forks a debugger when it aborts, which hides the signal from our parent
        os.environ.setdefault("GGML_NO_BACKTRACE", "1")
        self.c: Any = _binding(libraries)
        _check(self.c)
        self.complaints: deque[str] = deque(maxlen=_KEPT_LINES)
        self.notes: deque[str] = deque(maxlen=_KEPT_LINES)  # sizes, which only the log tells
        self.hear: Callable[[bytes], None] = lambda _line: None  # every line; must not raise
        self._log_callback = self.c.llama_log_callback(self._heard)
        self.c.llama_log_set(self._log_callback, None)
        variant = backends.load(libraries or Path(self.c.__file__).parent / "lib")
        self.c.llama_backend_init()
        self.version = f"{DISTRIBUTION} {_version()}" + (f" ({variant})" if variant else "")
        self.system = self.c.llama_print_system_info().decode("utf-8", "replace").strip()

    def last_complaint(self, default: str) -> str:
        """The most telling of the last lines, for an error message."""
        return next((line for line in reversed(self.complaints) if "failed" in line), default)

    def _heard(self, level: int, text: bytes | None, _data: object) -> None:
        # an exception must not travel into C, and a log line is worth none
        if not text:
            return
        self.hear(text)
        if level < _WARNING:
            if b"buffer size" in text:
                self.notes.append(text.decode("utf-8", "replace").strip()[:500])
            return
        line = text.decode("utf-8", "replace").strip()
        if line.strip("."):
            self.complaints.append(line[:500])
            _log.debug("%s", line)


def native_abort_flag() -> tuple[Callable[[Any], Any], ctypes.Array[ctypes.c_char]]:
    """A C function as abort callback and the bytes it looks at.

    ``strlen`` on ``b"\\0\\0"`` is 0 (go on), on ``b"\\1\\0"`` 1 (abort): no Python is run
    in the several hundred calls of a step. Only the low byte of its result is read as bool.
    """
    libc = ctypes.CDLL(None)
    address = ctypes.cast(libc.strlen, ctypes.c_void_p).value
    if address is None:
        raise EngineFailed("cannot prepare the engine: libc has no strlen")
    flag = ctypes.create_string_buffer(2)
    return (lambda kind: kind(address)), flag


def _version() -> str:
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"


def _binding(libraries: Path | None) -> Any:
    if libraries is not None:
        os.environ["LLAMA_CPP_LIB_PATH"] = str(libraries)  # read by the binding
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or spec.submodule_search_locations is None:
        raise EngineFailed(
            f"cannot load the engine: {DISTRIBUTION} is not installed",
            hint="run 'make run', or reinstall the package",
        )
    if "llama_cpp" not in sys.modules:
        bare = types.ModuleType("llama_cpp")
        bare.__path__ = list(spec.submodule_search_locations)
        bare.__spec__ = spec  # else a second find_spec in this process fails
        sys.modules["llama_cpp"] = bare
    try:
        return importlib.import_module("llama_cpp.llama_cpp")
    except (AttributeError, OSError, RuntimeError, ImportError) as error:
        raise EngineFailed(f"cannot load the engine: {error}") from error


def _check(binding: object) -> None:
    missing = [name for name in (*SYMBOLS, *CONSTANTS) if not hasattr(binding, name)]
    if missing:
        raise EngineFailed(
            f"cannot use the engine: {DISTRIBUTION} {_version()} lacks {', '.join(missing)}",
            hint="this version of Stoker needs the pinned version of the binding",
        )
