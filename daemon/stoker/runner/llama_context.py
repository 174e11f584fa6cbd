"""Makes a llama.cpp context of a loaded model, and says what it costs or why there is none.

Every limit that C would answer with abort() is kept here or in the loader's checks.
"""

from __future__ import annotations

import re
from typing import Any, Final

from stoker.errors import InsufficientMemory, ModelUnavailable
from stoker.events.runner import Load
from stoker.runner.library import Library

DEFAULT_CONTEXT_TOKENS: Final = 4096
MIN_CONTEXT_TOKENS: Final = 256
MAX_UBATCH: Final = 512
SCORE_CHUNK_TOKENS: Final = 32
KV_TYPES: Final = {"f16": "GGML_TYPE_F16", "q8_0": "GGML_TYPE_Q8_0", "q4_0": "GGML_TYPE_Q4_0"}
FLASH: Final = {"auto": "AUTO", "on": "ENABLED", "off": "DISABLED"}
_KV_SIZE: Final = re.compile(r"(?:KV|RS) buffer size = +([0-9.]+) MiB")


def make(library: Library, model: Any, request: Load, context_tokens: int) -> Any:
    """``context_tokens`` is per slot. Raises InsufficientMemory, ModelUnavailable."""
    c = library.c
    library.notes.clear()
    params = c.llama_context_default_params()
    params.n_ctx = cells(request, context_tokens)
    params.n_seq_max = sequences(request) + 1  # one for scoring
    params.n_outputs_max = max(request.slots + 1, SCORE_CHUNK_TOKENS)  # logits are large
    params.pooling_type = 0  # none: vectors are pooled here, so that one context does both
    params.kv_unified = True  # sequences share cells: a copied prefix costs none
    params.n_batch = max(request.batch_tokens, params.n_seq_max)  # a smaller one aborts
    params.n_ubatch = min(params.n_batch, MAX_UBATCH)
    params.n_threads = request.threads
    params.n_threads_batch = request.threads_batch
    params.type_k = params.type_v = getattr(c, KV_TYPES[request.kv_type])
    params.flash_attn_type = getattr(c, f"LLAMA_FLASH_ATTN_TYPE_{FLASH[request.flash_attention]}")
    context = c.llama_init_from_model(model, params)
    if not context:
        reason = library.last_complaint("llama.cpp made no context")
        raise InsufficientMemory(
            f"cannot make room for {params.n_ctx} tokens of context: {reason}",
            hint="lower context_tokens or slots, or use kv_type q8_0",
            details={"context_tokens": context_tokens, "slots": request.slots},
        )
    if not c.llama_get_memory(context):  # BERT and its kin: they read a text and write none
        c.llama_free(context)
        raise ModelUnavailable(
            f"cannot load model {request.path}: it is an encoder, which cannot write text",
            hint="for vectors too, take a model that writes; see docs/inference.md",
        )
    return context


def tokens_per_slot(request: Load, trained: int) -> int:
    """What was asked for, within what the model was trained for."""
    wanted = request.context_tokens or min(trained, DEFAULT_CONTEXT_TOKENS)
    return max(MIN_CONTEXT_TOKENS, min(wanted, trained) if trained > 0 else wanted)


def sequences(request: Load) -> int:
    return request.slots + request.cached_prefixes


def cells(request: Load, context_tokens: int) -> int:
    return context_tokens * request.slots + request.cache_tokens


def kv_bytes(library: Library) -> int:
    """Of the context made last, as llama.cpp says it; 0 = it did not say."""
    sizes = (found for line in library.notes for found in _KV_SIZE.findall(line))
    return sum(int(float(size) * (1 << 20)) for size in sizes)


def can_cache(c: Any, model: Any) -> bool:
    """States of recurrent models cannot be cut back to a prefix."""
    return not (c.llama_model_is_recurrent(model) or c.llama_model_is_hybrid(model))
