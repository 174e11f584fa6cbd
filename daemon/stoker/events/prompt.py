"""What a caller says to the model and how the answer shall be: values that travel to the runner.

Shared by requests (``events.inference.Ask``) and the runner's own protocol
(``events.runner.Generate``); neither side says these fields twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. ``tool_calls`` is a JSON list as in OpenAI's API, on an assistant's turn."""

    role: str  # system | user | assistant | tool
    content: str
    tool_calls: str = ""
    tool_call_id: str = ""  # which call a tool's turn answers
    name: str = ""  # of the tool


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampler settings; ``top_k`` runs first (it makes the rest 10 x cheaper)."""

    temperature: float = 0.7  # 0 = greedy
    top_k: int = 40  # 0 = whole vocabulary
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repeat_last_n: int = 64
    seed: int = -1  # -1 = the runner draws one and reports it


SAMPLING_RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "temperature": (0.0, 5.0),
    "top_k": (0, 1_000_000),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repeat_penalty": (0.1, 10.0),
    "frequency_penalty": (-2.0, 2.0),
    "presence_penalty": (-2.0, 2.0),
    "repeat_last_n": (0, 4096),
    "seed": (-1, 0xFFFFFFFF),
}
"""What each setting may be, for configuration, requests and the runner alike."""

OVERFLOW: Final = ("error", "truncate-oldest", "shift")
"""What is done when a conversation does not fit the context; see ``runner.overflowing``."""

NO_LOGPROBS: Final = -1
NO_BUDGET: Final = -1


@dataclass(frozen=True, slots=True)
class AdapterScale:
    """A LoRA adapter by its configured name, and how strongly it acts (1 = as trained)."""

    name: str
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One whole call that the model made; ``arguments`` is the JSON text of an object."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Shape:
    """What the answer must look like, beside how it is sampled. Texts are bounded at the door."""

    schema: str = ""  # JSON Schema the answer must follow; "{}" = any JSON value
    grammar: str = ""  # GBNF; not together with schema
    tools: str = ""  # JSON list of tools in OpenAI's form
    tool_choice: str = "auto"  # auto | none | required | the name of a function
    logprobs: int = NO_LOGPROBS  # 0..20 alternatives a token; -1 = no log-probabilities
    reasoning_tokens: int = NO_BUDGET  # then </think> is forced; -1 = no limit
    adapters: tuple[AdapterScale, ...] = ()
