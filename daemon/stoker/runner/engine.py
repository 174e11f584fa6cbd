"""The engine as the loop sees it: sequences, steps, samples. No sockets, no jobs.

One thread calls everything except ``raise_abort``, which any thread may call.
An engine that cannot abort or batch is still an engine (``max_parallel``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, Protocol

from stoker.events.runner import Load, Message, Sampling

Progress = Callable[[float], bool]
"""Called with 0..1 while loading; False stops the load."""


class Outcome(Enum):
    """How a step ended. Anything worse raises EngineFailed."""

    DONE = auto()
    FULL = auto()  # no room in the key-value cache; nothing was changed
    ABORTED = auto()  # part of the batch may have been evaluated: ask ``length``


@dataclass(frozen=True, slots=True)
class Identity:
    name: str
    library: str
    system: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a loaded model."""

    description: str
    parameters: int
    size_bytes: int
    context_tokens: int  # per slot
    train_context_tokens: int
    vocabulary: int
    slots: int
    batch_tokens: int  # largest batch that may be given to ``step``


class Run(NamedTuple):
    """Tokens of one sequence in a batch, from position ``start``."""

    seq: int
    start: int
    tokens: Sequence[int]
    logits: bool  # of the last token only


class Engine(Protocol):
    def identity(self) -> Identity: ...

    def load(self, request: Load, progress: Progress) -> Facts:
        """Raises ModelUnavailable, InsufficientMemory, InvalidRequest, Cancelled."""

    def unload(self) -> None: ...

    def facts(self) -> Facts | None: ...

    def render(self, messages: Sequence[Message]) -> str:
        """The model's chat template; raises InvalidRequest if it refuses the messages."""

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """Tokens without anything added."""

    def encode(self, text: str) -> list[int]:
        """Tokens of a whole prompt: control tokens parsed, one beginning-of-text at most."""

    def piece(self, token: int) -> bytes | None:
        """Bytes of a token; None = it ends the text."""

    def open(self, seq: int, sampling: Sampling, seed: int) -> None:
        """A new, empty sequence with its own sampler. Sequence ids are 0..slots-1."""

    def close(self, seq: int) -> None: ...

    def step(self, runs: Sequence[Run]) -> Outcome: ...

    def sample(self, seq: int) -> int:
        """The next token of a sequence whose last run asked for logits in the last step."""

    def length(self, seq: int) -> int:
        """Positions kept of a sequence."""

    def truncate(self, seq: int, length: int) -> bool:
        """Forget positions from ``length`` on; False if this memory cannot."""

    def score(self, tokens: Sequence[int], start: int) -> tuple[float, int]:
        """Nats of some tokens after ``start``, and the next start. Start again with 0.

        One call evaluates one bounded chunk, so that jobs go on in between.
        """

    def set_threads(self, threads: int, threads_batch: int) -> None: ...

    def raise_abort(self) -> None:
        """End the running step early. Any thread; harmless when nothing runs."""

    def clear_abort(self) -> None: ...

    def stats(self) -> Mapping[str, object]: ...
