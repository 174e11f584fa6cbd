"""Values of changing the model: how a new one is tried, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from stoker.events.prompt import AdapterScale
from stoker.units import Bytes, Seconds


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What a model did when it was tried."""

    text: str = ""
    tokens: int = 0
    first_token_ms: float = 0.0
    decode_tok_s: float = 0.0
    nll_per_token: float = math.nan  # nats, of the probe's own text
    memory_bytes: Bytes = Bytes(0)
    nlls: tuple[float, ...] = ()  # nats a token, of the probe's further texts in their order
    answers: tuple[str, ...] = ()  # to its questions, in their order


def can_speak(report: ProbeReport) -> str:
    """The least that is asked of a model: it writes, and its numbers are numbers."""
    if report.tokens < 1:
        return "it wrote nothing"
    if not math.isfinite(report.nll_per_token):
        return "its scores are no numbers"
    return ""


@dataclass(frozen=True, slots=True)
class Question:
    """Asked as a user would, at temperature 0."""

    prompt: str
    max_tokens: int = 16
    adapters: tuple[AdapterScale, ...] = ()


@dataclass(frozen=True, slots=True)
class Probe:
    """A short generation and scores; ``judge`` gives "" or what is wrong."""

    prompt: str = "The capital of France is"
    text: str = "Water boils at a hundred degrees and freezes at zero."
    max_tokens: int = 8
    timeout_s: Seconds = Seconds(60.0)
    judge: Callable[[ProbeReport], str] = can_speak
    texts: tuple[str, ...] = ()  # to be scored too
    questions: tuple[Question, ...] = ()  # to be answered too, one after the other


@dataclass(frozen=True, slots=True)
class SwapResult:
    """A swap that went well; one that did not is a typed error."""

    model: str
    previous: str
    beside: bool  # both were loaded for a while
    took_s: Seconds
    preempted: int  # jobs that did not end in time
    probe: ProbeReport
    changed: bool = True  # False = it served already
