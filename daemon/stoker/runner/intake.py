"""From a Generate request to a Job: checks, chat template, tokens, seed.

Every limit of a request is checked here, before anything of it reaches the engine.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Final

from stoker.errors import InvalidRequest
from stoker.events.prompt import OVERFLOW, Message
from stoker.events.runner import Generate
from stoker.runner import overflowing, reasoning, samplers, shaping, stops
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
        if request.overflow == "shift" and not facts.shifts:
            raise _wrong("overflow", "this model's memory cannot shift")
        shaped = shaping.of(request, self._engine)
        text, tokens = self._prompt(request, facts)
        omitted = (0, 0)
        if request.overflow == "truncate-oldest" and len(request.messages) > 1:
            text, tokens, omitted = self._shorten(request, facts, text, tokens)
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
            omitted=omitted,
            shaping=shaped,
            adapters=shaping.adapters_key(request.shape, self._engine.adapters().keys()),
        )

    def _prompt(self, request: Generate, facts: Facts) -> tuple[str, list[int]]:
        text = self._text(request, facts)
        return text, self._engine.encode(text)

    def _shorten(
        self, request: Generate, facts: Facts, text: str, tokens: list[int]
    ) -> tuple[str, list[int], tuple[int, int]]:
        """Leaves out the oldest turns until prompt and answer fit; the fewest that do.

        The answer gets what it asks for, up to a quarter of the context. If even the last
        turn is too long the prompt stays as it is and overflows.
        """
        room = facts.context_tokens - min(request.max_tokens, facts.context_tokens // 4)
        before, best, most = len(tokens), (text, tokens, (0, 0)), overflowing.droppable(request)
        fewest = 0 if before <= room else 1
        while 0 < fewest <= most:  # fewer messages make fewer tokens: halve the range
            middle = (fewest + most) // 2
            shorter = replace(request, messages=overflowing.without(request, middle))
            text, tokens = self._prompt(shorter, facts)
            if len(tokens) <= room:
                left_out = len(request.messages) - len(shorter.messages)
                best, most = (text, tokens, (left_out, before - len(tokens))), middle - 1
            else:
                fewest = middle + 1
        return best

    def _text(self, request: Generate, facts: Facts) -> str:
        refuse_overflow(request.prompt, facts)
        for message in request.messages:
            refuse_overflow(message.content, facts)
        if request.raw:
            return request.prompt
        shape = request.shape
        text = self._engine.render(
            request.messages or (Message("user", request.prompt),),
            tools="" if shape.tool_choice == "none" else shape.tools,
            thinking=shape.reasoning_tokens != 0,
        )
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
    if request.overflow not in OVERFLOW:
        raise _wrong("overflow", f"{request.overflow!r} is not error, truncate-oldest or shift")
    stops.check(request.stop)
    samplers.check(request.sampling)


def _wrong(path: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"cannot generate: {path}: {reason}", details={"path": path})
