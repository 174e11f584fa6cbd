"""A deterministic engine for tests of everything else: it says the prompt's words again.

One word a token. With ``faults`` some prompts make it misbehave as real ones do:
``!crash`` abort, ``!oom`` SIGKILL, ``!hang``; ``!slow N``, ``!long N`` and ``!think``
always work. A model path with ``crash-on-load`` in it crashes. It reads no model file.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from stoker.errors import Cancelled, EngineFailed, InvalidRequest, ModelUnavailable
from stoker.events.prompt import Message, Sampling
from stoker.events.runner import Adapter, Load, Resize
from stoker.runner import samplers
from stoker.runner.engine import Facts, Identity, Outcome, Progress, Run
from stoker.runner.grammar_rules import Grammar
from stoker.runner.tool_forms import HERMES, Form

_WORDS = re.compile(r"\s*\S+|\s+$")
_END = 0


class EchoAdapters:
    """No adapter changes what it says; one with ``unusable`` in its path is refused."""

    def __init__(self) -> None:
        self._wanted: dict[str, str] = {}

    def take(self, wanted: Sequence[Adapter]) -> None:
        self._wanted = {item.name: item.path for item in wanted}

    def reasons(self) -> Mapping[str, str]:
        wanted = self._wanted.items()
        return {name: "it is no adapter" if "unusable" in path else "" for name, path in wanted}

    def keys(self) -> Mapping[str, str]:
        return self._wanted


class EchoEngine:
    def __init__(
        self, *, faults: bool = False, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._faults = faults
        self._sleep = sleep
        self._facts: Facts | None = None
        self._pieces: dict[int, bytes] = {_END: b""}
        self._held: dict[int, list[int]] = {}
        self._scripts: dict[int, list[int]] = {}
        self._slow_s: dict[int, float] = {}
        self._abort = False
        self._adapters = EchoAdapters()
        self._threads = (1, 1)

    def identity(self) -> Identity:
        return Identity("echo", "echo 1", "none")

    def facts(self) -> Facts | None:
        return self._facts

    def load(self, request: Load, progress: Progress) -> Facts:
        if "crash-on-load" in request.path and self._faults:
            os.abort()
        if "missing" in request.path and not Path(request.path).exists():
            raise ModelUnavailable(f"cannot load model {request.path}: no such file")
        for tenth in range(11):
            if not progress(tenth / 10):
                raise Cancelled(f"cannot load model {request.path}: stopped")
        self._threads = (request.threads, request.threads_batch)
        self._adapters.take(request.adapters)
        self._facts = Facts(
            description="echo", parameters=0, size_bytes=0,
            context_tokens=request.context_tokens or 4096, train_context_tokens=4096,
            vocabulary=1 << 30, slots=max(request.slots, 1),
            batch_tokens=max(request.batch_tokens, request.slots, 1),
            sequences=max(request.slots, 1) + request.cached_prefixes,
            cells=max(request.slots, 1) * (request.context_tokens or 4096) + request.cache_tokens,
            caches=True, shifts=True, fingerprint=f"echo:{request.path}", state_kind="echo 1",
        )  # fmt: skip
        return self._facts

    def resize(self, request: Resize) -> Facts:
        if self._facts is None:
            raise ModelUnavailable("cannot resize the context: no model is loaded")
        cached = self._facts.sequences - self._facts.slots
        self._held.clear()
        self._facts = replace(
            self._facts,
            slots=request.slots,
            context_tokens=request.context_tokens,
            sequences=request.slots + cached,
            cells=request.cells,
        )
        return self._facts

    def unload(self) -> None:
        self._facts = None
        self._held.clear()
        self._scripts.clear()

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: str = "",  # noqa: ARG002
        thinking: bool = True,  # noqa: ARG002
    ) -> str:
        return messages[-1].content if messages else ""

    def tokenize(self, text: str, *, special: bool) -> list[int]:  # noqa: ARG002
        return [self._id(word.encode("utf-8", "replace")) for word in _WORDS.findall(text)]

    def encode(self, text: str) -> list[int]:
        return self.tokenize(text, special=True)

    def piece(self, token: int) -> bytes | None:
        return None if token == _END else self._pieces[token]

    def open(self, seq: int, sampling: Sampling, seed: int) -> None:  # noqa: ARG002
        samplers.check(sampling)
        self._held.setdefault(seq, [])

    def close(self, seq: int) -> None:
        for table in (self._scripts, self._slow_s):
            table.pop(seq, None)

    def clear(self, seq: int) -> None:
        self._held.pop(seq, None)

    def copy(self, source: int, target: int, length: int) -> bool:
        self._held[target] = self._held[source][:length]
        return True

    def shift(self, seq: int, keep: int, discard: int) -> bool:
        del self._held[seq][keep : keep + discard]
        return True

    def save(self, seq: int) -> memoryview | None:
        words = [self._pieces[token].decode("utf-8", "replace") for token in self._held[seq]]
        return memoryview(json.dumps(words).encode())

    def restore(self, seq: int, state: memoryview) -> bool:
        self._held[seq] = [self._id(word.encode()) for word in json.loads(bytes(state))]
        return True

    def step(self, runs: Sequence[Run]) -> Outcome:
        wait_s = max((self._slow_s.get(run.seq, 0.0) for run in runs), default=0.0)
        if wait_s:
            self._sleep(wait_s)
        if self._abort:
            return Outcome.ABORTED
        for run in runs:
            held = self._held.setdefault(run.seq, [])
            if run.start != len(held):
                raise EngineFailed(f"cannot run a step: {len(held)} positions, not {run.start}")
            held.extend(run.tokens)
            if run.logits and run.seq not in self._scripts:
                self._scripts[run.seq] = self._script(run.seq, held)
        return Outcome.DONE

    def sample(self, seq: int) -> int:
        script = self._scripts[seq]
        return script.pop() if script else _END

    def tool_form(self) -> Form:
        return HERMES

    def constrain(self, seq: int, grammar: Grammar) -> None:
        """It says what it says."""

    def exhausted(self, seq: int) -> bool:  # noqa: ARG002
        return False

    def chances(self, seq: int, token: int, top: int) -> tuple[float, list[tuple[int, float]]]:  # noqa: ARG002
        """Each word was certain."""
        return 0.0, [(token, 0.0)][:top]

    def adapters(self) -> EchoAdapters:
        return self._adapters

    def adapt(self, adapters: Sequence[tuple[str, float]]) -> None:
        """No adapter changes what it says."""

    def embed(self, tokens: Sequence[int], start: int) -> tuple[list[float], int]:  # noqa: ARG002
        sizes = [len(self._pieces[token]) for token in tokens]
        return [float(len(sizes)), float(sum(sizes)), 1.0], max(len(tokens), 1)

    def length(self, seq: int) -> int:
        return len(self._held.get(seq, ()))

    def truncate(self, seq: int, length: int) -> bool:
        del self._held[seq][length:]
        return True

    def score(self, tokens: Sequence[int], start: int) -> tuple[float, int]:
        """A word costs its bytes in nats: enough to tell a short text from a long one."""
        nats = sum(len(self._pieces[token]) for token in tokens[start + 1 :])
        return float(nats), max(len(tokens) - 1, 1)

    def set_threads(self, threads: int, threads_batch: int) -> None:
        if threads < 1 or threads_batch < 1:
            raise InvalidRequest("cannot set threads: both must be at least 1")
        self._threads = (threads, threads_batch)

    def raise_abort(self) -> None:
        self._abort = True

    def clear_abort(self) -> None:
        self._abort = False

    def stats(self) -> Mapping[str, object]:
        return {"threads": self._threads[0], "threads_batch": self._threads[1]}

    def _script(self, seq: int, tokens: Sequence[int]) -> list[int]:
        """What to say, last word first."""
        words = [self._pieces[token] for token in tokens]
        first = words[0].strip() if words else b""
        if self._faults:
            self._misbehave(first)
        number = int(words[1]) if len(words) > 1 and words[1].strip().isdigit() else 1
        if first == b"!slow":
            self._slow_s[seq] = number / 1000.0
            words = words[2:]
        elif first == b"!long":
            words = [b" word%d" % index for index in range(number)]
        elif first == b"!think":
            words = [b"<think>", b"hm,", b" well", b"</think>", *words[1:]]
        return [self._id(word) for word in reversed(words)]

    def _misbehave(self, word: bytes) -> None:
        if word == b"!crash":
            os.abort()
        if word == b"!oom":  # what the kernel's OOM killer does to us
            os.kill(os.getpid(), signal.SIGKILL)
        while word == b"!hang":
            self._sleep(3600.0)

    def _id(self, piece: bytes) -> int:
        """The same in every process, so that saved states make sense in the next one."""
        token = zlib.crc32(piece) % (1 << 30) or 1
        while self._pieces.setdefault(token, piece) != piece:
            token = token % (1 << 30) + 1
        return token
