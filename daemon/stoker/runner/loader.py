"""Loads a model file into llama.cpp step by step, with progress, or says why not.

Order: look at the header, read the file ahead (slow storage shows its progress and the
heartbeat goes on), load, make the context, warm up. Frees what it made when it fails.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stoker.errors import Cancelled, InsufficientMemory, InvalidRequest, ModelUnavailable
from stoker.events.runner import Load
from stoker.runner import gguf
from stoker.runner.engine import Facts, Progress
from stoker.runner.library import Library
from stoker.runner.template import CHATML, ChatTemplate
from stoker.runner.vocabulary import Vocabulary

DEFAULT_CONTEXT_TOKENS: Final = 4096
MAX_CONTEXT_TOKENS: Final = 1 << 20
MAX_SLOTS: Final = 64
MAX_UBATCH: Final = 512
SCORE_CHUNK_TOKENS: Final = 32
_READ_BYTES: Final = 4 * 1024 * 1024
_READ_SHARE: Final = 0.5
_KV_TYPES: Final = {"f16": "GGML_TYPE_F16", "q8_0": "GGML_TYPE_Q8_0", "q4_0": "GGML_TYPE_Q4_0"}
_FLASH: Final = {"auto": "AUTO", "on": "ENABLED", "off": "DISABLED"}


@dataclass(slots=True)
class Loaded:
    """Everything that belongs to one model; ``free`` gives it back."""

    model: Any
    context: Any
    memory: Any
    batch: Any
    vocabulary: Vocabulary
    template: ChatTemplate
    facts: Facts
    warnings: tuple[str, ...]

    def free(self, c: Any) -> None:
        c.llama_batch_free(self.batch)
        c.llama_free(self.context)
        c.llama_model_free(self.model)


class Loader:
    def __init__(self, library: Library) -> None:
        self._library = library
        self._c = library.c

    def load(self, request: Load, progress: Progress) -> Loaded:
        _check_request(request)
        size = gguf.check(request.path)
        self._library.complaints.clear()
        if request.mmap:
            _read_ahead(request.path, size, lambda part: progress(part * _READ_SHARE))
        model = self._model(request, progress)
        try:
            return self._rest(request, model, progress)
        except BaseException:
            self._c.llama_model_free(model)
            raise

    def _model(self, request: Load, progress: Progress) -> Any:
        c = self._c
        params = c.llama_model_default_params()
        params.n_gpu_layers = request.gpu_layers
        params.load_mode = getattr(c, f"LLAMA_LOAD_MODE_{_mode(request)}")
        first = _READ_SHARE if request.mmap else 0.0
        going = True

        def report(fraction: float, _data: object) -> bool:
            nonlocal going
            going = going and progress(first + (1.0 - first) * 0.95 * fraction)
            return going

        params.progress_callback = callback = c.llama_progress_callback(report)
        model = c.llama_model_load_from_file(os.fsencode(request.path), params)
        del callback
        if model:
            return model
        if not going:
            raise Cancelled(f"cannot load model {request.path}: stopped")
        raise self._failure(request.path)

    def _failure(self, path: str) -> ModelUnavailable | InsufficientMemory:
        reason = self._library.last_complaint("llama.cpp refused the file")
        if "alloc" in reason or "out of memory" in reason:
            return InsufficientMemory(f"cannot load model {path}: {reason}")
        return ModelUnavailable(
            f"cannot load model {path}: {reason}",
            hint="is it a model this llama.cpp knows? fetch it again and compare its SHA-256",
        )

    def _rest(self, request: Load, model: Any, progress: Progress) -> Loaded:
        c = self._c
        self._refuse_other_kinds(request.path, model)
        vocabulary = Vocabulary(c, c.llama_model_get_vocab(model))
        source = c.llama_model_chat_template(model, None)
        template = ChatTemplate(
            source.decode("utf-8", "replace") if source else CHATML,
            bos=vocabulary.bos_text,
            eos=vocabulary.eos_text,
        )
        context_tokens = _context(request, int(c.llama_model_n_ctx_train(model)))
        context = self._context(request, model, context_tokens)
        batch_tokens = int(c.llama_n_batch(context))
        batch = c.llama_batch_init(batch_tokens, 0, 1)
        progress(1.0)
        facts = Facts(
            description=self._description(model),
            parameters=int(c.llama_model_n_params(model)),
            size_bytes=int(c.llama_model_size(model)),
            context_tokens=context_tokens,
            train_context_tokens=int(c.llama_model_n_ctx_train(model)),
            vocabulary=vocabulary.size,
            slots=request.slots,
            batch_tokens=batch_tokens,
        )
        warnings = self._warnings(request)
        return Loaded(
            model=model, context=context, memory=c.llama_get_memory(context), batch=batch,
            vocabulary=vocabulary, template=template, facts=facts, warnings=warnings,
        )  # fmt: skip

    def _context(self, request: Load, model: Any, context_tokens: int) -> Any:
        c = self._c
        params = c.llama_context_default_params()
        params.n_ctx = context_tokens * request.slots
        params.n_seq_max = request.slots + 1  # one for scoring
        params.n_outputs_max = max(params.n_seq_max, SCORE_CHUNK_TOKENS)  # logits are large
        params.kv_unified = True
        params.n_batch = max(request.batch_tokens, params.n_seq_max)  # a smaller one aborts
        params.n_ubatch = min(params.n_batch, MAX_UBATCH)
        params.n_threads = request.threads
        params.n_threads_batch = request.threads_batch
        params.type_k = params.type_v = getattr(c, _KV_TYPES[request.kv_type])
        params.flash_attn_type = getattr(
            c, f"LLAMA_FLASH_ATTN_TYPE_{_FLASH[request.flash_attention]}"
        )
        context = c.llama_init_from_model(model, params)
        if not context:
            reason = self._library.last_complaint("llama.cpp made no context")
            raise InsufficientMemory(
                f"cannot make room for {params.n_ctx} tokens of context: {reason}",
                hint="lower context_tokens or slots, or use kv_type q8_0",
                details={"context_tokens": context_tokens, "slots": request.slots},
            )
        return context

    def _refuse_other_kinds(self, path: str, model: Any) -> None:
        c = self._c
        if c.llama_model_has_encoder(model) or not c.llama_model_has_decoder(model):
            raise ModelUnavailable(f"cannot load model {path}: it is no decoder-only model")
        if c.llama_model_is_diffusion(model):
            raise ModelUnavailable(f"cannot load model {path}: diffusion models are not served")

    def _description(self, model: Any) -> str:
        buffer = ctypes.create_string_buffer(256)
        self._c.llama_model_desc(model, buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    def _warnings(self, request: Load) -> tuple[str, ...]:
        if not request.mlock:
            return ()
        found = [line for line in self._library.complaints if "mlock" in line.lower()]
        if not found:
            return ()
        limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
        return (f"the weights are not locked in memory (limit {limit} bytes): {found[0]}",)


def _mode(request: Load) -> str:
    if request.mmap:
        return "MMAP_MLOCK" if request.mlock else "MMAP"
    return "MLOCK" if request.mlock else "NONE"


def _context(request: Load, trained: int) -> int:
    wanted = request.context_tokens or min(trained, DEFAULT_CONTEXT_TOKENS)
    return max(256, min(wanted, trained) if trained > 0 else wanted)


def _check_request(request: Load) -> None:
    threads = 4 * (os.cpu_count() or 1)
    limits = {
        "context_tokens": (0, MAX_CONTEXT_TOKENS),
        "slots": (1, MAX_SLOTS),
        "threads": (1, threads),
        "threads_batch": (1, threads),
        "batch_tokens": (1, 8192),
        "prefill_target_ms": (1, 60_000),
        "gpu_layers": (-1, 10_000),
    }
    for name, (low, high) in limits.items():
        value = getattr(request, name)
        if not low <= value <= high:
            raise _wrong(name, f"{value} is outside {low}..{high}")
    if request.kv_type not in _KV_TYPES:
        raise _wrong("kv_type", f"{request.kv_type!r} is not one of {', '.join(_KV_TYPES)}")
    if request.flash_attention not in _FLASH:
        raise _wrong("flash_attention", f"{request.flash_attention!r} is not auto, on or off")
    if "\0" in request.path or not request.path:
        raise _wrong("path", "it is empty or holds a zero byte")


def _wrong(name: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"cannot load a model: {name}: {reason}", details={"path": name})


def _read_ahead(path: str, size: int, progress: Callable[[float], bool]) -> None:
    """Fills the page cache. A mapped file would be read inside the first step, silently."""
    buffer = memoryview(bytearray(_READ_BYTES))
    done = 0
    with Path(path).open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            done += count
            if not progress(min(done / max(size, 1), 1.0)):
                raise Cancelled(f"cannot load model {path}: stopped")
