"""Loads a model file into llama.cpp step by step, with progress, or says why not.

Order: look at the header, read the file ahead (slow storage shows its progress and the
heartbeat goes on), load, make the context, warm up. Frees what it made when it fails.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from stoker.errors import Cancelled, InsufficientMemory, InvalidRequest, ModelUnavailable
from stoker.events.runner import Load, Resize
from stoker.runner import gguf, llama_adapters, llama_context
from stoker.runner.engine import Facts, Progress
from stoker.runner.fingerprint import fingerprint
from stoker.runner.library import Library
from stoker.runner.llama_context import FLASH, KV_TYPES
from stoker.runner.llama_memory import LlamaMemory
from stoker.runner.template import CHATML, ChatTemplate
from stoker.runner.vocabulary import Vocabulary

MAX_CONTEXT_TOKENS: Final = 1 << 20
MAX_SLOTS: Final = 64
MAX_CACHED_PREFIXES: Final = 64  # with the slots' and the one for scoring far below C's 256
_READ_BYTES: Final = 4 * 1024 * 1024
_READ_SHARE: Final = 0.5


@dataclass(slots=True)
class Loaded:
    """Everything that belongs to one model; ``free`` gives it back."""

    model: Any
    context: Any
    memory: LlamaMemory
    batch: Any
    request: Load
    vocabulary: Vocabulary
    template: ChatTemplate
    facts: Facts
    warnings: tuple[str, ...]
    adapters: llama_adapters.Shelf

    def free(self, c: Any) -> None:
        self.free_context(c)
        c.llama_model_free(self.model)

    def free_context(self, c: Any) -> None:
        if self.context:
            c.llama_batch_free(self.batch)
            c.llama_free(self.context)
            self.context = None


class Loader:
    def __init__(self, library: Library) -> None:
        self._library = library
        self._c = library.c

    def load(self, request: Load, progress: Progress) -> Loaded:
        check_request(request)
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

    def again(self, old: Loaded, request: Load) -> Loaded:
        """The context anew for the same model. Raises InsufficientMemory; then the old one is
        gone too, and ``again`` may be tried with another request.
        """
        c = self._c
        old.free_context(c)
        size = llama_context.tokens_per_slot(request, old.facts.train_context_tokens)
        context = llama_context.make(self._library, old.model, request, size)
        batch_tokens = int(c.llama_n_batch(context))
        facts = replace(
            old.facts,
            context_tokens=size,
            slots=request.slots,
            batch_tokens=batch_tokens,
            sequences=llama_context.sequences(request),
            cells=int(c.llama_n_ctx(context)),
            kv_bytes=llama_context.kv_bytes(self._library),
        )
        return replace(
            old, context=context, memory=LlamaMemory(c, context), request=request, facts=facts,
            batch=c.llama_batch_init(batch_tokens, 0, 1),
        )  # fmt: skip

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
        template, said = self._template(model, vocabulary)
        size = llama_context.tokens_per_slot(request, int(c.llama_model_n_ctx_train(model)))
        context = llama_context.make(self._library, model, request, size)
        memory = LlamaMemory(c, context)
        batch_tokens = int(c.llama_n_batch(context))
        batch = c.llama_batch_init(batch_tokens, 0, 1)
        progress(1.0)
        facts = Facts(
            description=self._description(model),
            parameters=int(c.llama_model_n_params(model)),
            size_bytes=int(c.llama_model_size(model)),
            context_tokens=size,
            train_context_tokens=int(c.llama_model_n_ctx_train(model)),
            vocabulary=vocabulary.size,
            slots=request.slots,
            batch_tokens=batch_tokens,
            sequences=llama_context.sequences(request),
            cells=int(c.llama_n_ctx(context)),
            caches=llama_context.can_cache(c, model),
            shifts=memory.can_shift,
            kv_bytes=llama_context.kv_bytes(self._library),
            fingerprint=fingerprint(request.path),
            state_kind=f"{request.kv_type} {self._library.version}",
        )
        warnings = self._warnings(request) + said
        adapters = llama_adapters.Shelf(self._library, model)
        adapters.take(request.adapters)
        warnings += tuple(reason for reason in adapters.reasons().values() if reason)
        return Loaded(
            model=model, context=context, memory=memory, batch=batch, request=request,
            vocabulary=vocabulary, template=template, facts=facts, warnings=warnings,
            adapters=adapters,
        )  # fmt: skip

    def _template(self, model: Any, vocabulary: Vocabulary) -> tuple[ChatTemplate, tuple[str, ...]]:
        """The model's template, with its second one for tools where it has one that works."""
        bos, eos = vocabulary.bos_text, vocabulary.eos_text
        source, second = (
            (self._c.llama_model_chat_template(model, name) or b"").decode("utf-8", "replace")
            for name in (None, b"tool_use")
        )
        tool_use, said = None, []
        try:
            tool_use = ChatTemplate(second, bos=bos, eos=eos) if second else None
        except ModelUnavailable as error:
            said.append(f"tools are told by the plain chat template: tool_use: {error}")
        return ChatTemplate(source or CHATML, bos=bos, eos=eos, tool_use=tool_use), tuple(said)

    def _refuse_other_kinds(self, path: str, model: Any) -> None:
        c = self._c
        if c.llama_model_has_encoder(model) or not c.llama_model_has_decoder(model):
            raise ModelUnavailable(f"cannot load model {path}: it has an encoder (as T5)")
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


def check_request(request: Load) -> None:
    threads = 4 * (os.cpu_count() or 1)
    limits = {
        "context_tokens": (0, MAX_CONTEXT_TOKENS),
        "slots": (1, MAX_SLOTS),
        "threads": (1, threads),
        "threads_batch": (1, threads),
        "batch_tokens": (1, 8192),
        "prefill_target_ms": (1, 60_000),
        "gpu_layers": (-1, 10_000),
        "cached_prefixes": (0, MAX_CACHED_PREFIXES),
        "cache_tokens": (0, MAX_CONTEXT_TOKENS),
    }
    for name, (low, high) in limits.items():
        value = getattr(request, name)
        if not low <= value <= high:
            raise _wrong(name, f"{value} is outside {low}..{high}")
    if request.kv_type not in KV_TYPES:
        raise _wrong("kv_type", f"{request.kv_type!r} is not one of {', '.join(KV_TYPES)}")
    if request.flash_attention not in FLASH:
        raise _wrong("flash_attention", f"{request.flash_attention!r} is not auto, on or off")
    if "\0" in request.path or not request.path:
        raise _wrong("path", "it is empty or holds a zero byte")


def resized(request: Load, wanted: Resize) -> Load:
    """The load that gives the wanted context. Raises InvalidRequest."""
    fresh = replace(
        request,
        slots=wanted.slots,
        context_tokens=wanted.context_tokens,
        cache_tokens=wanted.cache_tokens,
    )
    check_request(fresh)
    return fresh


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
