"""What stokerd and the runner say to each other, as frozen values.

Requests go to the runner, events come back. ``to_body``/``parse_*`` turn them into
the JSON bodies of ``core.frames``; a body that does not fit is an ``InvalidRequest``
with the path of the key. Unknown keys are errors on both sides: the two processes
always come from the same package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from stoker.errors import InvalidRequest, StokerError
from stoker.events import bodies
from stoker.events.prompt import AdapterScale, Message, Sampling, Shape, ToolCall
from stoker.events.runner_questions import (
    Adapt as Adapt,
)
from stoker.events.runner_questions import (
    Adapter as Adapter,
)
from stoker.events.runner_questions import (
    ApplyTemplate as ApplyTemplate,
)
from stoker.events.runner_questions import (
    Embed as Embed,
)
from stoker.events.runner_questions import (
    Forget as Forget,
)
from stoker.events.runner_questions import (
    Inspect as Inspect,
)
from stoker.events.runner_questions import (
    Measure as Measure,
)
from stoker.events.runner_questions import (
    Resize as Resize,
)
from stoker.events.runner_questions import (
    Score as Score,
)
from stoker.events.runner_questions import (
    SetThreads as SetThreads,
)
from stoker.events.runner_questions import (
    Stats as Stats,
)
from stoker.events.runner_questions import (
    Tokenize as Tokenize,
)
from stoker.events.runner_questions import (
    Unload as Unload,
)
from stoker.getters import Table


@dataclass(frozen=True, slots=True)
class Load:
    """Load ``path``; answered by LoadProgress events, then Loaded or Failed."""

    id: str
    model: str
    path: str
    context_tokens: int = 0  # per slot; 0 = the model's training context, at most 4096
    slots: int = 4
    threads: int = 1
    threads_batch: int = 1
    batch_tokens: int = 512
    prefill_target_ms: int = 200
    mmap: bool = True
    mlock: bool = False
    kv_type: str = "f16"  # f16 | q8_0 | q4_0
    flash_attention: str = "auto"  # auto | on | off
    gpu_layers: int = 0
    adapters: tuple[Adapter, ...] = ()
    cached_prefixes: int = 0  # sequences kept beyond the slots' own; they share the cells
    cache_tokens: int = 0  # cells beside slots x context_tokens, for cached prefixes
    state_bytes: int = 0  # most bytes of saved states in the scratch directory; 0 = none
    state_idle_ms: int = 0  # a conversation is saved when it was not used for so long
    shared_prefixes: tuple[str, ...] = ()  # public system prompts: reused across scopes


@dataclass(frozen=True, slots=True)
class Generate:
    """One job. Either ``prompt`` or ``messages``; ``raw`` skips the chat template.

    A prefix is only ever reused within one ``scope`` (a shared cache would be a timing
    side channel); ``keep`` names a conversation whose state may be saved to disk.
    """

    job: str
    prompt: str = ""
    messages: tuple[Message, ...] = ()
    raw: bool = False
    max_tokens: int = 512
    stop: tuple[str, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    reasoning: bool = True  # split <think>…</think> from the answer
    deadline_ms: int = 0  # wall time from acceptance by the runner; 0 = none
    shape: Shape = field(default_factory=Shape)
    scope: str = ""  # the caller's UID; "" = nothing is reused or kept
    keep: str = ""
    overflow: str = "error"  # error | truncate-oldest | shift; what is left out is told in done


@dataclass(frozen=True, slots=True)
class Cancel:
    job: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Stop scheduling a job (its reader is slow); its sequence stays in place."""

    job: str


@dataclass(frozen=True, slots=True)
class Resume:
    job: str


@dataclass(frozen=True, slots=True)
class Ping:
    """The agent's heartbeat: without one for 5 s the runner stops decoding."""

    seq: int


Request = (
    Load | Generate | Cancel | Pause | Resume | Tokenize | ApplyTemplate | Score | Embed
    | Inspect | Forget | Adapt | Resize | Stats | Unload | SetThreads | Measure | Ping
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hello:
    """First word of a runner."""

    engine: str
    library: str  # llama.cpp build, e.g. "llama-cpp-python 0.3.36"
    system: str  # CPU features the backend uses
    pid: int


@dataclass(frozen=True, slots=True)
class LoadProgress:
    id: str
    fraction: float


@dataclass(frozen=True, slots=True)
class Loaded:
    id: str
    model: str
    description: str
    parameters: int
    size_bytes: int
    context_tokens: int  # per slot
    train_context_tokens: int
    vocabulary: int
    slots: int
    load_ms: float
    kv_bytes: int = 0  # of the key-value cache
    fingerprint: str = ""  # tells this model file from another one
    saved: Mapping[str, object] = field(default_factory=dict)  # scope -> its saved conversations
    pinning: str = ""  # of the compute threads: one-to-one | set | free
    scheduling: str = ""  # other | fifo:5 …
    placement_note: str = ""  # what was wanted of it and not reached
    placement_cpus: str = ""  # a kernel list such as 4-7
    nice: int = 0  # the lowest of the compute threads


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a query (all requests with an ``id`` but Load)."""

    id: str
    result: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Failed:
    """A query or a load failed; ``code`` is one of ``stoker.errors``."""

    id: str
    code: str
    message: str
    hint: str = ""
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Delta:
    """What one step brought one job. ``done`` or ``error`` is the last of its job.

    ``t`` is answer text, ``r`` reasoning, ``p`` (done, total) prompt tokens, ``tools``
    whole calls, ``lp`` {"content": [...]} as in OpenAI's API. ``done`` holds finish_reason
    ("stop" | "length" | "stop-string" | "tool-calls"), usage (with cached_tokens), timings,
    gaps (see ``runner.gaps``; callers do not get it), and omitted_messages, omitted_tokens and
    shifted_tokens when overflow made something go.

    ``n`` tokens were made and ``e`` of the prompt evaluated since the job's last delta: what is
    charged. Every delta says so, also one with no text, and the last word of a cancelled job.
    """

    job: str
    t: str = ""
    r: str = ""
    p: tuple[int, int] | None = None
    tools: tuple[ToolCall, ...] = ()
    lp: Mapping[str, object] | None = None
    done: Mapping[str, object] | None = None
    error: Mapping[str, object] | None = None
    n: int = 0
    e: int = 0

    @property
    def says(self) -> bool:
        """There is something in it for its reader, beside progress and an end."""
        return bool(self.t or self.r or self.tools or self.lp is not None)


@dataclass(frozen=True, slots=True)
class Deltas:
    """All that one step produced, in one frame."""

    items: tuple[Delta, ...]


@dataclass(frozen=True, slots=True)
class Beat:
    """The runner's loop came round: sent at least once a second, and after each load step."""

    seq: int  # last Ping seen
    steps: int  # decode steps since start
    active: int
    waiting: int
    sampled: int = 0  # tokens of all answers since start


_SHORT_TEXT: Final = 1 << 16  # characters; longer ones are measured in bytes
_MANY_TOKENS: Final = 1 << 31

Event = Hello | LoadProgress | Loaded | Answer | Failed | Deltas | Beat

_REQUESTS: Final[dict[str, type]] = {
    "load": Load, "generate": Generate, "cancel": Cancel, "pause": Pause, "resume": Resume,
    "tokenize": Tokenize, "template": ApplyTemplate, "score": Score, "embed": Embed,
    "inspect": Inspect, "forget": Forget, "adapt": Adapt, "resize": Resize, "stats": Stats,
    "unload": Unload, "threads": SetThreads, "measure": Measure, "ping": Ping,
}  # fmt: skip
_EVENTS: Final[dict[str, type]] = {
    "hello": Hello, "progress": LoadProgress, "loaded": Loaded, "answer": Answer,
    "failed": Failed, "deltas": Deltas, "beat": Beat,
}  # fmt: skip
_NAMES: Final = {cls: name for name, cls in (_REQUESTS | _EVENTS).items()}


def to_body(message: Request | Event) -> dict[str, object]:
    """The JSON body; fields that hold their default are left out to keep tokens cheap."""
    return {"k": _NAMES[type(message)], **bodies.sparse(message)}


def parse_request(body: Mapping[str, object]) -> Request:
    """Raises InvalidRequest."""
    return cast(Request, _parse(body, _REQUESTS))


def parse_event(body: Mapping[str, object]) -> Event:
    """Raises InvalidRequest."""
    return _texts(body) or cast(Event, _parse(body, _EVENTS))


def _texts(body: Mapping[str, object]) -> Deltas | None:
    """Deltas that hold text and its tokens only, which is nearly every frame, in a third of the
    time; None = something else, or something wrong, for the whole way to say what.
    """
    items = body.get("items")
    if body.get("k") != "deltas" or len(body) != 2 or not isinstance(items, list):
        return None
    found = []
    for item in items[: bodies.MAX_ITEMS + 1]:
        if not isinstance(item, dict) or len(item) != 3:
            return None
        job, text, made = item.get("job"), item.get("t"), item.get("n")
        if not isinstance(job, str) or not isinstance(text, str) or len(text) > _SHORT_TEXT:
            return None
        if type(made) is not int or not 0 <= made <= _MANY_TOKENS:
            return None
        found.append(Delta(job, text, n=made))
    return Deltas(tuple(found)) if len(found) <= bodies.MAX_ITEMS else None


def _fail(path: str, reason: str) -> StokerError:
    return InvalidRequest(f"cannot read frame: {path}: {reason}", details={"path": path})


def _parse(body: Mapping[str, object], classes: Mapping[str, type]) -> object:
    table = Table(body, _fail)
    return bodies.build(classes[table.choice("k", tuple(classes))], table, _NESTED)


_NESTED: Final[dict[str, type]] = {
    "Message": Message, "Delta": Delta, "Sampling": Sampling, "Shape": Shape,
    "Adapter": Adapter, "AdapterScale": AdapterScale, "ToolCall": ToolCall,
}  # fmt: skip
