"""llama.cpp as an Engine, through its low-level API. One thread; no jobs, no sockets.

Nothing goes to C unchecked: it answers a wrong index with abort(). The batch is made
once and refilled, pieces are cached: per-token Python work is what separates us from
llama-bench.
"""

from __future__ import annotations

import ctypes
import datetime
import math
import os
import resource
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from stoker.errors import EngineFailed, InsufficientMemory, InvalidRequest
from stoker.events.runner import Load, Message, Sampling
from stoker.runner import samplers
from stoker.runner.engine import Facts, Identity, Outcome, Progress, Run
from stoker.runner.library import Library, native_abort_flag
from stoker.runner.loader import SCORE_CHUNK_TOKENS, Loaded, Loader
from stoker.runner.vocabulary import Vocabulary

_SCORE_BYTES: Final = 4 * 1024 * 1024
Now = Callable[[], datetime.datetime]


class LlamaEngine:
    """``now`` gives the date that some chat templates print."""

    def __init__(self, library: Library, *, now: Now) -> None:
        self._library = library
        self._c = library.c
        self._now = now
        self._install, self._flag = native_abort_flag()
        self._loaded: Loaded | None = None
        self._chains: dict[int, Any] = {}
        self._rows: dict[int, int] = {}  # sequence -> row of its logits in the last batch
        self._decode = library.c.llama_decode
        self._sample = library.c.llama_sampler_sample
        self._batch: Any = None
        self._threads = (0, 0)
        self._abort_callback: Any = None

    def identity(self) -> Identity:
        return Identity("llama", self._library.version, self._library.system)

    def facts(self) -> Facts | None:
        return self._loaded.facts if self._loaded else None

    def load(self, request: Load, progress: Progress) -> Facts:
        if self._loaded:
            self.unload()
        loaded = Loader(self._library).load(request, progress)
        self._loaded = loaded
        self._threads = (request.threads, request.threads_batch)
        self._abort_callback = self._install(self._c.ggml_abort_callback)
        self._c.llama_set_abort_callback(
            loaded.context, self._abort_callback, ctypes.addressof(self._flag)
        )
        self._batch = loaded.batch
        self._token, self._pos = loaded.batch.token, loaded.batch.pos
        self._seq_id, self._logits = loaded.batch.seq_id, loaded.batch.logits
        for row in range(loaded.facts.batch_tokens):
            loaded.batch.n_seq_id[row] = 1
        self._seqs = [self._seq_id[row] for row in range(loaded.facts.batch_tokens)]
        return loaded.facts

    def unload(self) -> None:
        for chain in self._chains.values():
            self._c.llama_sampler_free(chain)
        self._chains.clear()
        self._rows.clear()
        loaded, self._loaded = self._loaded, None
        if loaded:
            loaded.free(self._c)

    def render(self, messages: Sequence[Message]) -> str:
        return self._model().template.render(messages, now=self._now())

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        return self._vocabulary().tokenize(text, add_special=False, parse_special=special)

    def encode(self, text: str) -> list[int]:
        return self._vocabulary().encode(text)

    def piece(self, token: int) -> bytes | None:
        return self._vocabulary().piece(token)

    def open(self, seq: int, sampling: Sampling, seed: int) -> None:
        model = self._model()
        if not 0 <= seq < model.facts.slots or seq in self._chains:
            raise EngineFailed(f"cannot open sequence {seq}: out of range or in use")
        samplers.check(sampling)
        self._c.llama_memory_seq_rm(model.memory, seq, -1, -1)
        self._chains[seq] = samplers.build(
            self._c, sampling, seed=seed, vocabulary=model.facts.vocabulary
        )

    def close(self, seq: int) -> None:
        chain = self._chains.pop(seq, None)
        self._rows.pop(seq, None)
        if chain is not None and self._loaded:
            self._c.llama_sampler_free(chain)
            self._c.llama_memory_seq_rm(self._loaded.memory, seq, -1, -1)

    def step(self, runs: Sequence[Run]) -> Outcome:
        model = self._model()
        self._fill(runs, model.facts)
        status = self._decode(model.context, self._batch)
        if status == 0:
            return Outcome.DONE
        self._rows.clear()
        if status == 1:
            return Outcome.FULL
        if status == 2:
            return Outcome.ABORTED
        raise EngineFailed(f"cannot run a step: llama_decode returned {status}")

    def sample(self, seq: int) -> int:
        row = self._rows.pop(seq, None)
        if row is None:
            raise EngineFailed(f"cannot sample sequence {seq}: it has no logits")
        return int(self._sample(self._chains[seq], self._model().context, row))

    def length(self, seq: int) -> int:
        return int(self._c.llama_memory_seq_pos_max(self._model().memory, seq)) + 1

    def truncate(self, seq: int, length: int) -> bool:
        return bool(self._c.llama_memory_seq_rm(self._model().memory, seq, length, -1))

    def score(self, tokens: Sequence[int], start: int) -> tuple[float, int]:
        model = self._model()
        seq = model.facts.slots  # one more sequence than there are slots
        if start == 0:
            self._c.llama_memory_seq_rm(model.memory, seq, -1, -1)
        chunk = max(
            1,
            min(SCORE_CHUNK_TOKENS, model.facts.batch_tokens, _SCORE_BYTES // (4 * self._width())),
        )
        end = min(start + chunk, len(tokens) - 1)
        self._fill([Run(seq, start, tokens[start:end], True)], model.facts)
        for row in range(end - start):
            self._logits[row] = 1
        status = self._c.llama_decode(model.context, model.batch)
        self._rows.clear()
        if status == 0:
            nats = math.fsum(
                self._surprise(model.context, row, tokens[start + row + 1])
                for row in range(end - start)
            )
        if status != 0 or end >= len(tokens) - 1:
            self._c.llama_memory_seq_rm(model.memory, seq, -1, -1)
        if status == 1:
            raise InsufficientMemory("cannot score text: the key-value cache is full")
        if status == 2:  # a job was cancelled meanwhile: the whole text is run again
            return 0.0, 0
        if status != 0:
            raise EngineFailed(f"cannot score text: llama_decode returned {status}")
        return nats, end

    def set_threads(self, threads: int, threads_batch: int) -> None:
        most = 4 * (os.cpu_count() or 1)
        if not (1 <= threads <= most and 1 <= threads_batch <= most):
            raise InvalidRequest(f"cannot set threads: both must be 1..{most}")
        self._c.llama_set_n_threads(self._model().context, threads, threads_batch)
        self._threads = (threads, threads_batch)

    def raise_abort(self) -> None:
        self._flag[0] = b"\1"

    def clear_abort(self) -> None:
        self._flag[0] = b"\0"

    def stats(self) -> Mapping[str, object]:
        out: dict[str, object] = {
            "threads": self._threads[0],
            "threads_batch": self._threads[1],
            "rss_bytes": _resident_bytes(),
            "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "gomp_spincount": os.environ.get("GOMP_SPINCOUNT", ""),
        }
        if self._loaded:
            out["warnings"] = list(self._loaded.warnings)
            out["state_bytes"] = int(self._c.llama_state_get_size(self._loaded.context))
            out["context_tokens_total"] = int(self._c.llama_n_ctx(self._loaded.context))
        return out

    def _fill(self, runs: Sequence[Run], facts: Facts) -> None:
        """Refills the batch; every bound that C would answer with abort() is checked first."""
        row, most, vocabulary = 0, facts.batch_tokens, facts.vocabulary
        token, pos, logits, seqs = self._token, self._pos, self._logits, self._seqs
        rows = self._rows
        rows.clear()
        for seq, start, values, wants in runs:
            if row + len(values) > most:
                raise EngineFailed("cannot run a step: more tokens than a batch holds")
            position = start
            for value in values:
                if not 0 <= value < vocabulary:
                    raise EngineFailed(f"cannot run a step: token {value} is out of range")
                token[row] = value
                pos[row] = position
                seqs[row][0] = seq
                logits[row] = 0
                row += 1
                position += 1
            if wants and values:
                logits[row - 1] = 1
                rows[seq] = row - 1
        if row == 0 or len(rows) > facts.slots:
            raise EngineFailed("cannot run a step: the batch is empty or asks for too much")
        self._batch.n_tokens = row

    def _surprise(self, context: Any, row: int, token: int) -> float:
        """-log softmax(logits)[token] in nats, with the maximum taken out first."""
        pointer = self._c.llama_get_logits_ith(context, row)
        if not pointer:
            raise EngineFailed("cannot score text: no logits")
        logits = pointer[: self._width()]
        highest = max(logits)
        exp = math.exp
        total = math.fsum([exp(value - highest) for value in logits])
        return float(math.log(total) + highest - logits[token])

    def _width(self) -> int:
        return self._model().facts.vocabulary

    def _vocabulary(self) -> Vocabulary:
        return self._model().vocabulary

    def _model(self) -> Loaded:
        if self._loaded is None:
            raise EngineFailed("cannot use the engine: no model is loaded")
        return self._loaded


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
