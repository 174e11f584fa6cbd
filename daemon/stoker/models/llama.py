"""llama.cpp as the child needs it: a model with all its logits, and the quantiser. No printing.

The binding is the runner's (``runner.library``), checked and without the package's own classes.
Logits come as numpy arrays that are views of llama.cpp's memory: valid until the next ``logits``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stoker.errors import EngineFailed, ModelUnavailable, StokerError
from stoker.runner import gguf
from stoker.runner.library import Library

Floats = NDArray[np.float32]
WINDOW_TOKENS: Final = 512
_TEXT_BYTES: Final = 1 << 26


class Model:
    """A loaded file with one sequence of WINDOW_TOKENS; ``close`` gives the memory back."""

    def __init__(
        self,
        library: Library,
        path: str,
        *,
        threads: int,
        watch: Callable[[Any], None] | None = None,
    ) -> None:
        """``watch`` sees every tensor that is about to be computed (see ``importance``)."""
        gguf.check(path)  # a reason in words; some corrupt files make the library abort
        self._c = c = library.c
        params = c.llama_model_default_params()
        params.n_gpu_layers = 0
        self._model = c.llama_model_load_from_file(path.encode(), params)
        if not self._model:
            reason = library.last_complaint("llama.cpp refused it")
            raise ModelUnavailable(f"cannot load {path}: {reason}")
        self._vocab = c.llama_model_get_vocab(self._model)
        self.width: int = c.llama_vocab_n_tokens(self._vocab)
        settings = c.llama_context_default_params()
        settings.n_ctx = settings.n_batch = settings.n_ubatch = WINDOW_TOKENS
        settings.n_threads = settings.n_threads_batch = threads
        if watch is not None:
            self._watch = c.ggml_backend_sched_eval_callback(_watching(watch))
            settings.cb_eval = self._watch
        self._context = c.llama_init_from_model(self._model, settings)
        if not self._context:
            c.llama_model_free(self._model)
            raise EngineFailed(f"cannot make a context for {path}: memory is short")
        self._batch = c.llama_batch_init(WINDOW_TOKENS, 0, 1)

    def close(self) -> None:
        self._c.llama_batch_free(self._batch)
        self._c.llama_free(self._context)
        self._c.llama_model_free(self._model)

    @property
    def starts_with(self) -> int | None:
        """The token that every text begins with, if the model wants one."""
        wanted = self._c.llama_vocab_get_add_bos(self._vocab)
        return int(self._c.llama_vocab_bos(self._vocab)) if wanted else None

    def tokens(self, text: str) -> list[int]:
        """Of a text, without the token it begins with; control words in it are plain text."""
        data = text.encode("utf-8", "replace")
        if len(data) > _TEXT_BYTES:
            raise StokerError("cannot read text: it is longer than 64 MiB")
        room = (ctypes.c_int32 * (len(data) + 8))()
        count = self._c.llama_tokenize(self._vocab, data, len(data), room, len(room), False, False)
        if count < 0:
            raise EngineFailed("cannot read text: it has too many tokens")
        return list(room[:count])

    def logits(self, tokens: Sequence[int]) -> Floats:
        """(tokens, vocabulary) after each of at most WINDOW_TOKENS tokens of a fresh sequence."""
        batch = self._batch
        batch.n_tokens = len(tokens)
        for at, token in enumerate(tokens):
            batch.token[at], batch.pos[at] = token, at
            batch.n_seq_id[at], batch.seq_id[at][0] = 1, 0
            batch.logits[at] = 1
        self._c.llama_memory_clear(self._c.llama_get_memory(self._context), True)
        status = self._c.llama_decode(self._context, batch)
        if status != 0:
            raise EngineFailed(f"cannot evaluate: llama.cpp says {status}")
        first = self._c.llama_get_logits_ith(self._context, 0)
        return np.ctypeslib.as_array(first, shape=(len(tokens), self.width))

    def follow(self, at: int, count: int) -> None:
        """So many single steps behind a sequence of ``at`` tokens: what decoding costs."""
        batch = self._batch
        for step in range(count):
            batch.n_tokens = 1
            batch.token[0], batch.pos[0], batch.logits[0] = 1 + step, at + step, 1
            if self._c.llama_decode(self._context, batch) != 0:
                raise EngineFailed("cannot evaluate: llama.cpp refused a step")
            self._c.llama_get_logits_ith(self._context, 0)


def windows(model: Model, text: str, most: int) -> Iterator[list[int]]:
    """At most ``most`` tokens of a text, in windows that begin as the model wants it."""
    tokens = model.tokens(text)[:most]
    start = model.starts_with
    head = [] if start is None else [start]
    room = WINDOW_TOKENS - len(head)
    for at in range(0, len(tokens), room):
        window = [*head, *tokens[at : at + room]]
        if len(window) >= 2:
            yield window


def log_softmax(logits: Floats) -> Floats:
    """Row by row, in place of nothing: a new array."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return np.asarray(shifted, dtype=np.float32)


def _watching(watch: Callable[[Any], None]) -> Callable[[Any, bool, Any], bool]:
    """llama.cpp asks first (we want every tensor), then shows it."""

    def call(tensor: Any, asks: bool, _data: Any) -> bool:
        if not asks:
            watch(tensor)
        return True

    return call
