"""Values of conversations that the agent keeps: settings, turns, how a turn ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from stoker.units import Bytes, Seconds

OPEN, DONE, PARTIAL, FAILED = "open", "done", "partial", "failed"
"""States of a turn: being answered; answered; cut off but kept; without an answer."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the owner of a session may choose."""

    title: str = ""
    system: str = ""  # system message; it is never left out of the window
    model: str = ""  # "" = the default model
    window_turns: int = 5
    window_tokens: int = 0  # 0 = no budget beside the model's context
    ttl_s: Seconds = Seconds(0.0)  # 0 = as configured; never longer than that
    summaries: str = ""  # on | off: of what the window leaves out; "" = as configured


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation. Times are wall clock, seconds since 1970."""

    id: str
    uid: int
    settings: Settings = field(default_factory=Settings)
    created_s: float = 0.0
    used_s: float = 0.0
    turns: int = 0  # kept here, with and without an answer
    trimmed_turns: int = 0  # the oldest ones, dropped for max_bytes_per_session
    size_bytes: Bytes = Bytes(0)
    summary: str = ""  # of answered turns that no longer go to the model
    summary_upto: int = 0  # the last turn that it covers


@dataclass(frozen=True, slots=True)
class Turn:
    """A question and what became of it. Reasoning is not kept."""

    number: int  # counts from 1 and is not used twice in a session
    question: str
    answer: str = ""
    state: str = OPEN
    finish_reason: str = ""
    error_code: str = ""
    truncated: bool = False  # the answer was longer than max_result_bytes
    prompt_tokens: int = 0
    completion_tokens: int = 0
    omitted_turns: int = 0  # answered turns that did not go to the model with this one
    asked_s: float = 0.0
    ended_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Holding:
    """What eviction needs to know of a session."""

    id: str
    uid: int
    used_s: float
    size_bytes: int
    ttl_s: float = 0.0
    busy: bool = False  # being answered: it stays
