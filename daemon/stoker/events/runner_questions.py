"""What stokerd asks of a runner beside jobs: each has an id, and one answer or failure.

Part of the messages of ``events.runner``, which reads and writes them.
"""

from __future__ import annotations

from dataclasses import dataclass

from stoker.events.prompt import Message


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA file that jobs may use by its name."""

    name: str
    path: str


@dataclass(frozen=True, slots=True)
class Tokenize:
    id: str
    text: str
    special: bool = False  # parse control tokens such as <|im_start|>


@dataclass(frozen=True, slots=True)
class ApplyTemplate:
    id: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """Negative log-likelihood of ``text`` in nats, over all tokens but the first."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Embed:
    """Answered by ``vectors`` (mean of the last layer, unit length, one a text), ``tokens``."""

    id: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Inspect:
    """Facts of a model file without loading it: see ``runner.gguf``."""

    id: str
    path: str


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop cached prefixes and saved states of a scope, or of one conversation in it."""

    id: str
    scope: str
    keep: str = ""  # "" = all of the scope


@dataclass(frozen=True, slots=True)
class Adapt:
    """These adapters from here on, without loading the model again. Answered by ``unusable``:
    reasons by the names of those that cannot be used. Jobs that run end as they began.
    """

    id: str
    adapters: tuple[Adapter, ...] = ()


@dataclass(frozen=True, slots=True)
class Resize:
    """Make the context anew, smaller, when no job runs (memory pressure); else Failed busy."""

    id: str
    slots: int
    context_tokens: int
    cache_tokens: int = 0

    @property
    def cells(self) -> int:
        """Of the cache, for all sequences."""
        return self.slots * self.context_tokens + self.cache_tokens


@dataclass(frozen=True, slots=True)
class Stats:
    id: str


@dataclass(frozen=True, slots=True)
class Unload:
    id: str


@dataclass(frozen=True, slots=True)
class SetThreads:
    """Takes effect at the next step boundary; the answer says that it did.

    ``duty``: the part of the time that steps may take; below 1 the runner rests between them.
    """

    id: str
    threads: int
    threads_batch: int
    duty: float = 1.0


@dataclass(frozen=True, slots=True)
class Measure:
    """How fast a phase is with so many threads, measured for ``limit_ms``; while no job runs, or
    Failed busy. Answered by ``tokens``, ``wall_s`` and ``cpu_s``; threads are as before then."""

    id: str
    phase: str  # prefill | decode
    threads: int
    limit_ms: int
