"""The engine as the loop sees it: sequences, steps, samples. No sockets, no jobs.

One thread calls everything except ``raise_abort``, which any thread may call.
An engine that cannot abort or batch is still an engine (``max_parallel``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, Protocol

from stoker.events.prompt import Message, Sampling
from stoker.events.runner import Adapter, Load, Resize
from stoker.runner.grammar_rules import Grammar
from stoker.runner.tool_forms import Form

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
    sequences: int  # that hold something: the slots' own and those of cached prefixes
    cells: int  # positions that all sequences together may keep
    caches: bool  # this memory can copy and truncate sequences
    shifts: bool  # this memory can close a gap in a sequence
    kv_bytes: int = 0  # of the key-value cache; 0 = not known
    fingerprint: str = ""  # tells this model file from another one
    state_kind: str = ""  # saved states of another kind do not fit: cell types, library


class Run(NamedTuple):
    """Tokens of one sequence in a batch, from position ``start``."""

    seq: int
    start: int
    tokens: Sequence[int]
    logits: bool  # of the last token only


class Adapters(Protocol):
    """LoRA adapters of one model."""

    def take(self, wanted: Sequence[Adapter]) -> None:
        """These under their names from here on, also while jobs run; those that are loaded are
        not loaded again.
        """

    def reasons(self) -> Mapping[str, str]:
        """By name, why one cannot be used ("" = it can)."""

    def keys(self) -> Mapping[str, str]:
        """By name, what ``adapt`` calls it: another key when another file has this name."""


class Engine(Protocol):
    def identity(self) -> Identity: ...

    def load(self, request: Load, progress: Progress) -> Facts:
        """Raises ModelUnavailable, InsufficientMemory, InvalidRequest, Cancelled."""

    def unload(self) -> None: ...

    def facts(self) -> Facts | None: ...

    def render(self, messages: Sequence[Message], *, tools: str = "", thinking: bool = True) -> str:
        """The model's chat template; raises InvalidRequest if it refuses the messages.

        ``tools`` is a JSON list; ``thinking`` false asks for an answer without reasoning.
        """

    def tool_form(self) -> Form:
        """How this model writes tool calls."""

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """Tokens without anything added."""

    def encode(self, text: str) -> list[int]:
        """Tokens of a whole prompt: control tokens parsed, one beginning-of-text at most."""

    def piece(self, token: int) -> bytes | None:
        """Bytes of a token; None = it ends the text."""

    def open(self, seq: int, sampling: Sampling, seed: int) -> None:
        """A sampler for a sequence (0..sequences-1); what the sequence holds stays."""

    def close(self, seq: int) -> None:
        """The sampler goes; what the sequence holds stays until ``clear``."""

    def step(self, runs: Sequence[Run]) -> Outcome: ...

    def sample(self, seq: int) -> int:
        """The next token of a sequence whose last run asked for logits in the last step.

        Raises GrammarInvalid when the sequence is under a grammar that leaves none.
        """

    def constrain(self, seq: int, grammar: Grammar) -> None:
        """From here on the sequence's text follows a grammar."""

    def exhausted(self, seq: int) -> bool:
        """Its grammar is at an end and allows nothing more."""

    def chances(self, seq: int, token: int, top: int) -> tuple[float, list[tuple[int, float]]]:
        """Log-probabilities of the token just sampled and of the ``top`` likeliest, by the
        model alone (temperature 1, before any sampler).
        """

    def adapters(self) -> Adapters:
        """Those of the loaded model. Raises ModelUnavailable when there is none."""

    def adapt(self, adapters: Sequence[tuple[str, float]]) -> None:
        """Keys of adapters and scales of the steps from here on."""

    def embed(self, tokens: Sequence[int], start: int) -> tuple[list[float], int]:
        """The pooled sum of one bounded chunk's vectors, and the next start. Again with 0."""

    def length(self, seq: int) -> int:
        """Positions kept of a sequence."""

    def truncate(self, seq: int, length: int) -> bool:
        """Forget positions from ``length`` on; False if this memory cannot."""

    def clear(self, seq: int) -> None:
        """Forget all positions of a sequence."""

    def copy(self, source: int, target: int, length: int) -> bool:
        """An empty sequence holds the first ``length`` positions of another one; False and
        empty if this memory cannot. Costs no cells.
        """

    def shift(self, seq: int, keep: int, discard: int) -> bool:
        """Drop ``discard`` positions after ``keep`` and move the later ones up. The cells must
        not be shared with another sequence.
        """

    def save(self, seq: int) -> memoryview | None:
        """The state of a sequence as bytes; None if there is none or no memory for it."""

    def restore(self, seq: int, state: memoryview) -> bool:
        """What ``save`` gave, into an empty sequence; False and empty if it does not fit."""

    def resize(self, request: Resize) -> Facts:
        """The context anew: every sequence is empty then. Raises InvalidRequest, and
        InsufficientMemory with the old size in place, or nothing loaded if even that fails.
        """

    def score(self, tokens: Sequence[int], start: int) -> tuple[float, int]:
        """Nats of some tokens after ``start``, and the next start. Start again with 0.

        One call evaluates one bounded chunk, so that jobs go on in between.
        """

    def set_threads(self, threads: int, threads_batch: int) -> None: ...

    def raise_abort(self) -> None:
        """End the running step early. Any thread; harmless when nothing runs."""

    def clear_abort(self) -> None: ...

    def stats(self) -> Mapping[str, object]: ...
