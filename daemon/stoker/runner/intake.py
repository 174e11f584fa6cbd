"""From a Generate request to a Job: checks, chat template, tokens, seed.

Every limit of a request is checked here, before anything of it reaches the engine.
"""

from __future__ import annotations

import os
from typing import Final

from stoker.errors import InvalidRequest
from stoker.events.runner import Generate, Message
from stoker.runner import reasoning, samplers, stops
from stoker.runner.desk import need, overflow, refuse_overflow
from stoker.runner.engine import Engine, Facts
from stoker.runner.jobs import Job

MAX_TOKENS: Final = 1 << 20
MAX_DEADLINE_MS: Final = 1 << 40


class Intake:
    """Numbers the jobs in the order in which they come."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._accepted = 0

    def job(self, request: Generate, now_s: float) -> Job:
        """Raises ModelUnavailable, InvalidRequest, ContextLengthExceeded, RequestTooLarge."""
        facts = need(self._engine)
        _check(request)
        text = self._text(request, facts)
        tokens = self._engine.encode(text)
        if not tokens:
            raise _wrong("prompt", "it makes no tokens")
        if len(tokens) >= facts.context_tokens:
            raise overflow(len(tokens), facts)
        self._accepted += 1
        seed = request.sampling.seed
        return Job(
            request,
            tokens,
            number=self._accepted,
            context_tokens=facts.context_tokens,
            inside_think=reasoning.opened_by(text[-256:]),
            seed=seed if seed >= 0 else int.from_bytes(os.urandom(4), "little"),
            now_s=now_s,
        )

    def _text(self, request: Generate, facts: Facts) -> str:
        refuse_overflow(request.prompt, facts)
        for message in request.messages:
            refuse_overflow(message.content, facts)
        if request.raw:
            return request.prompt
        text = self._engine.render(request.messages or (Message("user", request.prompt),))
        refuse_overflow(text, facts)
        return text


def _check(request: Generate) -> None:
    if request.prompt and request.messages:
        raise _wrong("messages", "give either a prompt or messages, not both")
    if not request.prompt and not request.messages:
        raise _wrong("prompt", "it is empty")
    if request.raw and request.messages:
        raise _wrong("raw", "it needs a prompt, not messages")
    if not 1 <= request.max_tokens <= MAX_TOKENS:
        raise _wrong("max_tokens", f"{request.max_tokens} is outside 1..{MAX_TOKENS}")
    if not 0 <= request.deadline_ms <= MAX_DEADLINE_MS:
        raise _wrong("deadline_ms", f"{request.deadline_ms} is outside 0..{MAX_DEADLINE_MS}")
    stops.check(request.stop)
    samplers.check(request.sampling)


def _wrong(path: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"cannot generate: {path}: {reason}", details={"path": path})
