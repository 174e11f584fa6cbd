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
from stoker.events.prompt import Message, Sampling
from stoker.events.runner import Load, Resize
from stoker.runner import samplers
from stoker.runner.engine import Adapters, Facts, Identity, Outcome, Progress, Run
from stoker.runner.grammar_rules import Grammar
from stoker.runner.library import Library, native_abort_flag
from stoker.runner.llama_context import SCORE_CHUNK_TOKENS
from stoker.runner.llama_shaping import LlamaShaping
from stoker.runner.loader import Loaded, Loader, resized
from stoker.runner.tool_forms import Form
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
        self._shaping: LlamaShaping | None = None
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
        self._use(loaded)
        return loaded.facts

    def _use(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._shaping = LlamaShaping(
            self._c, loaded.model, loaded.context, loaded.vocabulary, loaded.adapters
        )
        self._threads = (loaded.request.threads, loaded.request.threads_batch)
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

    def _forget_chains(self) -> None:
        for chain in self._chains.values():
            self._c.llama_sampler_free(chain)
        self._chains.clear()
        self._rows.clear()
        if self._shaping is not None:
            self._shaping.free()
            self._shaping = None

    def unload(self) -> None:
        self._forget_chains()
        loaded, self._loaded = self._loaded, None
        if loaded:
            loaded.free(self._c)

    def render(self, messages: Sequence[Message], *, tools: str = "", thinking: bool = True) -> str:
        template = self._model().template
        return template.render(messages, now=self._now(), tools=tools, thinking=thinking)

    def tool_form(self) -> Form:
        return self._model().template.tool_form

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        return self._vocabulary().tokenize(text, add_special=False, parse_special=special)

    def encode(self, text: str) -> list[int]:
        return self._vocabulary().encode(text)

    def piece(self, token: int) -> bytes | None:
        return self._vocabulary().piece(token)

    def open(self, seq: int, sampling: Sampling, seed: int) -> None:
        model = self._model()
        if not 0 <= seq < model.facts.sequences or seq in self._chains:
            raise EngineFailed(f"cannot open sequence {seq}: out of range or in use")
        samplers.check(sampling)
        self._chains[seq] = samplers.build(
            self._c, sampling, seed=seed, vocabulary=model.facts.vocabulary
        )
        self._shaper().opened(seq, remembers=samplers.penalised(sampling))

    def close(self, seq: int) -> None:
        chain = self._chains.pop(seq, None)
        self._rows.pop(seq, None)
        if chain is not None and self._loaded:
            self._shaper().forget(seq)
            self._c.llama_sampler_free(chain)

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
        shaper = self._shaper()
        shaper.sampled_from(seq, row)
        if shaper.constrained(seq):
            return shaper.pick(seq, row, self._chains[seq])
        return int(self._sample(self._chains[seq], self._model().context, row))

    def constrain(self, seq: int, grammar: Grammar) -> None:
        if seq not in self._chains:
            raise EngineFailed(f"cannot constrain sequence {seq}: it is not open")
        self._shaper().constrain(seq, grammar)

    def exhausted(self, seq: int) -> bool:
        return self._shaper().exhausted(seq)

    def chances(self, seq: int, token: int, top: int) -> tuple[float, list[tuple[int, float]]]:
        return self._shaper().chances(seq, token, top)

    def adapters(self) -> Adapters:
        return self._model().adapters

    def adapt(self, adapters: Sequence[tuple[str, float]]) -> None:
        self._shaper().adapt(adapters)

    def embed(self, tokens: Sequence[int], start: int) -> tuple[list[float], int]:
        model, shaper = self._model(), self._shaper()
        seq = model.facts.sequences
        if start == 0:
            model.memory.clear(seq)
        shaper.adapt(())

        def decode(at: int, part: Sequence[int]) -> int:
            self._fill([Run(seq, at, part, True)], model.facts)
            for row in range(len(part)):
                self._logits[row] = 1
            return int(self._decode(model.context, self._batch))

        try:
            vector, end, status = shaper.embed(tokens, start, decode)
        finally:
            self._rows.clear()
        if status != 0 or end >= len(tokens):
            model.memory.clear(seq)
        return vector, _next_start(status, end, "embed text")

    def length(self, seq: int) -> int:
        return self._model().memory.length(seq)

    def truncate(self, seq: int, length: int) -> bool:
        return self._model().memory.truncate(seq, length)

    def clear(self, seq: int) -> None:
        self._model().memory.clear(seq)

    def copy(self, source: int, target: int, length: int) -> bool:
        return self._model().memory.copy(source, target, length)

    def shift(self, seq: int, keep: int, discard: int) -> bool:
        return self._model().memory.shift(seq, keep, discard)

    def save(self, seq: int) -> memoryview | None:
        return self._model().memory.save(seq)

    def restore(self, seq: int, state: memoryview) -> bool:
        return self._model().memory.restore(seq, state)

    def resize(self, request: Resize) -> Facts:
        model, loader = self._model(), Loader(self._library)
        wanted = resized(model.request, request)
        self._forget_chains()
        self._loaded = None
        try:
            self._use(loader.again(model, wanted))
        except InsufficientMemory:
            try:
                self._use(loader.again(model, model.request))
            except InsufficientMemory:
                model.free(self._c)
            raise
        return self._model().facts

    def score(self, tokens: Sequence[int], start: int) -> tuple[float, int]:
        model = self._model()
        seq = model.facts.sequences  # one more than jobs and cached prefixes may have
        if start == 0:
            model.memory.clear(seq)
        self.adapt(())
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
            model.memory.clear(seq)
        following = _next_start(status, end, "score text")
        return (nats if following else 0.0), following

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

    def _shaper(self) -> LlamaShaping:
        if self._shaping is None:
            raise EngineFailed("cannot use the engine: no model is loaded")
        return self._shaping

    def _width(self) -> int:
        return self._model().facts.vocabulary

    def _vocabulary(self) -> Vocabulary:
        return self._model().vocabulary

    def _model(self) -> Loaded:
        if self._loaded is None:
            raise EngineFailed("cannot use the engine: no model is loaded")
        return self._loaded


def _next_start(status: int, end: int, what: str) -> int:
    """Where a text goes on; 0 after a cancelled job's abort: the whole text is run again."""
    if status == 1:
        raise InsufficientMemory(f"cannot {what}: the key-value cache is full")
    if status not in (0, 2):
        raise EngineFailed(f"cannot {what}: llama_decode returned {status}")
    return end if status == 0 else 0


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
